// The ar format, and what it takes of ELF: symbols of objects are read for the archive's index, and
// an object file is wrapped around the weights.
#include "module/archive.h"
#include "module/copy.h"
#include "support/text.h"
#include "support/vec.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBER_BYTES = 60, WEIGHTS_ALIGN = 64 };

static const char magic[] = "!<arch>\n";
_Static_assert(sizeof(Elf64_Ehdr) <= WEIGHTS_ALIGN, "weights lie behind the head of their object");

// --- symbols ---

typedef struct symbols {
  Elf64_Sym *at;
  uint64_t n;
  const char *names;
  uint64_t names_bytes;
} symbols;

static bool fits(const kiln_object *o, uint64_t offset, uint64_t bytes) {
  return offset <= o->bytes && bytes <= o->bytes - offset;
}

// Finds the symbol table of an object file made by LLVM; false if it is malformed.
static bool find_symbols(const kiln_object *o, symbols *out) {
  const Elf64_Ehdr *head = o->data;
  *out = (symbols){0};
  if (!fits(o, 0, sizeof *head) || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
      !fits(o, head->e_shoff, (uint64_t)head->e_shnum * sizeof(Elf64_Shdr)))
    return false;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)((char *)o->data + head->e_shoff);
  for (int i = 0; i < head->e_shnum; i++) {
    const Elf64_Shdr *s = &sections[i];
    if (s->sh_type != SHT_SYMTAB) continue;
    if (s->sh_link >= head->e_shnum || !fits(o, s->sh_offset, s->sh_size)) return false;
    const Elf64_Shdr *names = &sections[s->sh_link];
    if (!fits(o, names->sh_offset, names->sh_size)) return false;
    *out = (symbols){(Elf64_Sym *)(void *)((char *)o->data + s->sh_offset),
                     s->sh_size / sizeof(Elf64_Sym), (char *)o->data + names->sh_offset,
                     names->sh_size};
  }
  return true;
}

static const char *name_of(const symbols *s, uint64_t i) {
  return s->at[i].st_name < s->names_bytes ? s->names + s->at[i].st_name : "";
}

static bool is_global(const Elf64_Sym *s) { return ELF64_ST_BIND(s->st_info) == STB_GLOBAL; }

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char **kiln_archive_needs(kiln_ctx *cx, int n, const kiln_object *objects, int *out_n) {
  KILN_VEC(const char *) has = {0}, needs = {0};
  for (int i = 0; i < n; i++) {
    symbols s;
    if (!find_symbols(&objects[i], &s)) continue;
    for (uint64_t k = 1; k < s.n; k++) {
      const char *name = kiln_arena_strdup(&cx->perm, name_of(&s, k));
      if (!is_global(&s.at[k]) || strcmp(name, "_GLOBAL_OFFSET_TABLE_") == 0) continue;
      if (s.at[k].st_shndx != SHN_UNDEF) KILN_VEC_PUSH(&cx->perm, &has, name);
      else KILN_VEC_PUSH(&cx->perm, &needs, name);
    }
  }
  int kept = 0;
  if (has.n > 1) qsort(has.data, (size_t)has.n, sizeof *has.data, by_text);
  if (needs.n > 1) qsort(needs.data, (size_t)needs.n, sizeof *needs.data, by_text);
  for (int i = 0; i < needs.n; i++) {
    const bool is_first = kept == 0 || strcmp(needs.data[kept - 1], needs.data[i]) != 0;
    const bool is_own =
        has.n > 0 && bsearch(&needs.data[i], has.data, (size_t)has.n, sizeof *has.data, by_text);
    if (is_first && !is_own) needs.data[kept++] = needs.data[i];
  }
  *out_n = kept;
  return needs.data;
}

// --- the object file of the weights ---

enum { S_NULL, S_WEIGHTS, S_STACK, S_SYMBOLS, S_NAMES, S_SECTIONS, N_WEIGHT_SECTIONS };
static const char section_names[] = "\0.rodata\0.note.GNU-stack\0.symtab\0.strtab\0.shstrtab";

// The file's contents before and after the weights.
typedef struct wrapping {
  Elf64_Ehdr head;
  Elf64_Sym symbols[2];
  Elf64_Shdr sections[N_WEIGHT_SECTIONS];
  uint64_t names_bytes; // of "\0" and the symbol's name
  uint64_t bytes;       // size of the whole file
} wrapping;

static uint64_t rounded(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

static Elf64_Word section_name(const char *name) {
  Elf64_Word at = 1;
  while (strcmp(section_names + at, name) != 0) at += (Elf64_Word)strlen(section_names + at) + 1;
  return at;
}

static void make_sections(const kiln_archive *a, wrapping *w) {
  const uint64_t weights = WEIGHTS_ALIGN, table = rounded(weights + a->weights_bytes, 8),
                 names = table + sizeof w->symbols, titles = names + w->names_bytes;
  w->sections[S_WEIGHTS] = (Elf64_Shdr){.sh_name = section_name(".rodata"),
                                        .sh_type = SHT_PROGBITS,
                                        .sh_flags = SHF_ALLOC,
                                        .sh_offset = weights,
                                        .sh_size = a->weights_bytes,
                                        .sh_addralign = WEIGHTS_ALIGN};
  w->sections[S_STACK] = (Elf64_Shdr){.sh_name = section_name(".note.GNU-stack"),
                                      .sh_type = SHT_PROGBITS,
                                      .sh_offset = table,
                                      .sh_addralign = 1};
  w->sections[S_SYMBOLS] = (Elf64_Shdr){.sh_name = section_name(".symtab"),
                                        .sh_type = SHT_SYMTAB,
                                        .sh_offset = table,
                                        .sh_size = sizeof w->symbols,
                                        .sh_link = S_NAMES,
                                        .sh_info = 1, // index of the first global symbol
                                        .sh_addralign = 8,
                                        .sh_entsize = sizeof w->symbols[0]};
  w->sections[S_NAMES] = (Elf64_Shdr){.sh_name = section_name(".strtab"),
                                      .sh_type = SHT_STRTAB,
                                      .sh_offset = names,
                                      .sh_size = w->names_bytes,
                                      .sh_addralign = 1};
  w->sections[S_SECTIONS] = (Elf64_Shdr){.sh_name = section_name(".shstrtab"),
                                         .sh_type = SHT_STRTAB,
                                         .sh_offset = titles,
                                         .sh_size = sizeof section_names,
                                         .sh_addralign = 1};
  w->head.e_shoff = rounded(titles + sizeof section_names, 8);
  w->bytes = w->head.e_shoff + sizeof w->sections;
}

static wrapping wrap(const kiln_archive *a) {
  wrapping w = {.names_bytes = strlen(a->weights) + 2};
  make_sections(a, &w);
  memcpy(w.head.e_ident, ELFMAG, SELFMAG);
  w.head.e_ident[EI_CLASS] = ELFCLASS64;
  w.head.e_ident[EI_DATA] = ELFDATA2LSB;
  w.head.e_ident[EI_VERSION] = EV_CURRENT;
  w.head.e_type = ET_REL;
  w.head.e_machine = a->is_arm ? EM_AARCH64 : EM_X86_64;
  w.head.e_version = EV_CURRENT;
  w.head.e_ehsize = sizeof w.head;
  w.head.e_shentsize = sizeof w.sections[0];
  w.head.e_shnum = N_WEIGHT_SECTIONS;
  w.head.e_shstrndx = S_SECTIONS;
  w.symbols[1] = (Elf64_Sym){.st_name = 1,
                             .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
                             .st_other = STV_HIDDEN,
                             .st_shndx = S_WEIGHTS,
                             .st_size = a->weights_bytes};
  return w;
}

// --- the archive ---

// Members follow each other at even offsets.
typedef struct writing {
  kiln_ctx *cx;
  const kiln_archive *a;
  kiln_output *out;
  uint64_t at;
  bool failed;
} writing;

static void put(writing *w, const void *data, size_t bytes) {
  if (!w->failed) w->failed = !kiln_write_all(w->out->file.fd, data, bytes, (int64_t)w->at);
  w->at += bytes;
}

static void put_head(writing *w, const char *name, uint64_t bytes) {
  char head[MEMBER_BYTES + 32];
  snprintf(head, sizeof head, "%-16s%-12d%-6d%-6d%-8s%-10" PRIu64 "`\n", name, 0, 0, 0, "644",
           bytes);
  put(w, head, MEMBER_BYTES);
}

static void put_even(writing *w) {
  if (w->at % 2) put(w, "\n", 1);
}

static void put_object(writing *w, int i) {
  const kiln_object *o = &w->a->objects[i];
  char name[24];
  snprintf(name, sizeof name, "k%d.o/", i);
  put_head(w, name, o->bytes);
  put(w, o->data, o->bytes);
  put_even(w);
}

static void put_weights(writing *w, const wrapping *o) {
  const kiln_archive *a = w->a;
  put_head(w, "weights.o/", o->bytes);
  const uint64_t begin = w->at;
  put(w, &o->head, sizeof o->head);
  w->out->parts.weights_offset = begin + WEIGHTS_ALIGN;
  w->at = begin + o->sections[S_SYMBOLS].sh_offset;
  put(w, o->symbols, sizeof o->symbols);
  put(w, "", 1);
  put(w, a->weights, o->names_bytes - 1);
  put(w, section_names, sizeof section_names);
  w->at = begin + o->head.e_shoff;
  put(w, o->sections, sizeof o->sections);
}

// The archive's index: the offset of the member that defines each symbol, then all names.
typedef struct index_table {
  KILN_VEC(int) members;
  kiln_text names;
} index_table;

static kiln_status make_index(writing *w, index_table *out) {
  kiln_text_init(&out->names, &w->cx->perm);
  for (int i = 0; i < w->a->n_objects; i++) {
    symbols s;
    if (!find_symbols(&w->a->objects[i], &s))
      return KILN_FAIL(w->cx->diag, KILN_INTERNAL, w->out->path, "object %d: must be one", i);
    for (uint64_t k = 1; k < s.n; k++) {
      if (!is_global(&s.at[k]) || s.at[k].st_shndx == SHN_UNDEF) continue;
      const char *name = name_of(&s, k);
      if (strcmp(name, w->a->visible) != 0) s.at[k].st_other = STV_HIDDEN;
      KILN_VEC_PUSH(&w->cx->perm, &out->members, i);
      kiln_text_add_bytes(&out->names, name, strlen(name) + 1);
    }
  }
  if (!w->a->weights) return KILN_OK;
  KILN_VEC_PUSH(&w->cx->perm, &out->members, w->a->n_objects);
  kiln_text_add_bytes(&out->names, w->a->weights, strlen(w->a->weights) + 1);
  return KILN_OK;
}

static void put_u32(writing *w, uint64_t v) {
  const unsigned char bytes[] = {(unsigned char)(v >> 24), (unsigned char)(v >> 16),
                                 (unsigned char)(v >> 8), (unsigned char)v};
  put(w, bytes, sizeof bytes);
}

static void put_index(writing *w, const index_table *x) {
  const uint64_t bytes = 4 + 4 * (uint64_t)x->members.n + (uint64_t)x->names.n;
  uint64_t *begins = KILN_NEW_ARRAY(&w->cx->perm, uint64_t, w->a->n_objects + 1);
  begins[0] = rounded(w->at + MEMBER_BYTES + bytes, 2);
  for (int i = 0; i < w->a->n_objects; i++)
    begins[i + 1] = begins[i] + MEMBER_BYTES + rounded(w->a->objects[i].bytes, 2);
  put_head(w, "/", bytes);
  put_u32(w, (uint64_t)x->members.n);
  for (int i = 0; i < x->members.n; i++) put_u32(w, begins[x->members.data[i]]);
  put(w, x->names.data, (size_t)x->names.n);
  put_even(w);
}

kiln_status kiln_archive_write(kiln_ctx *cx, const kiln_archive *a, kiln_output *out) {
  writing w = {.cx = cx, .a = a, .out = out};
  index_table x = {0};
  KILN_TRY(make_index(&w, &x));
  put(&w, magic, sizeof magic - 1);
  put_index(&w, &x);
  for (int i = 0; i < a->n_objects; i++) put_object(&w, i);
  if (a->weights) {
    const wrapping object = wrap(a);
    put_weights(&w, &object);
  }
  if (!w.failed) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, out->path, "must be writable: %s", strerror(errno));
}
