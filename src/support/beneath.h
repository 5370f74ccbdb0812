// Opening files inside of a folder: "..", absolute paths and symbolic links must not lead out of
// it.
#ifndef KILN_SUPPORT_BENEATH_H
#define KILN_SUPPORT_BENEATH_H

// Opens |name| for reading, relative to the open |folder|. Symbolic links are followed as long as
// they stay inside.
// gives: a descriptor; -1 with errno set: EXDEV if the path leads out of the folder
int kiln_open_beneath(int folder, const char *name);
// The fallback for kernels without openat2(2): resolves the path and checks it before opening the
// file.
int kiln_open_beneath_by_path(int folder, const char *name);

#endif
