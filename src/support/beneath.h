// Files of a folder that nothing leads out of: no "..", no absolute path, no symbolic link to
// elsewhere.
#ifndef KILN_SUPPORT_BENEATH_H
#define KILN_SUPPORT_BENEATH_H

// Opens |name| for reading, relative to the open |folder|. Symbolic links are followed as long as
// they stay in it.
//
// gives: a descriptor; -1, and errno says why: EXDEV: it leads out of the folder
int kiln_open_beneath(int folder, const char *name);
// What that does where the kernel has no openat2(2): the path of what was found decides, before it
// is opened.
int kiln_open_beneath_by_path(int folder, const char *name);

#endif
