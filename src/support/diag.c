// Diagnostics: a growing list of formatted messages. A message for which memory is out is dropped,
// but the status still reaches the caller; if the list is empty then, a static message says so.
#include "support/diag.h"
#include "support/numbers.h"
#include "support/printable.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct message {
  char *text, *place; // malloc'ed; |place| is NULL if there is none, or memory was out
} message;

struct kiln_diag {
  size_t n, cap;
  message *messages; // [n]
  bool has_lost;     // a message was dropped
};

static const char lost[] = "error: no memory left";

kiln_diag *kiln_diag_create(void) { return calloc(1, sizeof(kiln_diag)); }

void kiln_diag_clear(kiln_diag *diag) {
  if (!diag) return;
  for (size_t i = 0; i < diag->n; i++) {
    free(diag->messages[i].text);
    free(diag->messages[i].place);
  }
  diag->n = 0;
  diag->has_lost = false;
}

void kiln_diag_destroy(kiln_diag *diag) {
  if (!diag) return;
  kiln_diag_clear(diag);
  free(diag->messages);
  free(diag);
}

size_t kiln_diag_count(const kiln_diag *diag) {
  return !diag ? 0 : diag->n > 0 ? diag->n : diag->has_lost;
}

const char *kiln_diag_message(const kiln_diag *diag, size_t i) {
  if (!diag || i >= kiln_diag_count(diag)) return NULL;
  return i < diag->n ? diag->messages[i].text : lost;
}

const char *kiln_diag_place(const kiln_diag *diag, size_t i) {
  return diag && i < diag->n ? diag->messages[i].place : NULL;
}

static bool has_room(kiln_diag *diag) {
  if (diag->n < diag->cap) return true;
  const size_t cap = diag->cap ? diag->cap * 2 : 8;
  message *grown = realloc(diag->messages, cap * sizeof(*grown));
  if (!grown) return false;
  diag->messages = grown;
  diag->cap = cap;
  return true;
}

// gives: |text| in printable form, malloc'ed; NULL without memory
static char *printable_copy(const char *text) {
  const size_t n = strlen(text);
  char *printable = malloc(KILN_PRINTABLE_GROWTH * n + 1);
  if (printable) kiln_message_printable(text, n, printable);
  return printable;
}

// Appends a message; drops it if memory is out.
static void take(kiln_diag *diag, char *text, char *place) {
  if (text && has_room(diag)) {
    diag->messages[diag->n++] = (message){text, place};
    return;
  }
  diag->has_lost = true;
  free(text);
  free(place);
}

// Appends "place: word: message".
static void append(kiln_diag *diag, const char *place, const char *word, const char *format,
                   va_list args) {
  if (!diag || !format) return;
  va_list again;
  va_copy(again, args);
  const int head = snprintf(NULL, 0, "%s%s%s: ", place ? place : "", place ? ": " : "", word);
  const int tail = kiln_number_vformat(NULL, 0, format, args);
  char *printable = NULL,
       *raw = head < 0 || tail < 0 ? NULL : malloc((size_t)head + (size_t)tail + 1);
  if (raw) {
    snprintf(raw, (size_t)head + 1, "%s%s%s: ", place ? place : "", place ? ": " : "", word);
    kiln_number_vformat(raw + head, (size_t)tail + 1, format, again);
    printable = printable_copy(raw);
    free(raw);
  }
  va_end(again);
  take(diag, printable, place ? printable_copy(place) : NULL);
}

kiln_status kiln_status_of_error(int error) {
  return error == ENOMEM ? KILN_NO_MEMORY : KILN_BAD_INPUT;
}

kiln_status kiln_argument_check(kiln_diag *diag, const char *function, const char *name,
                                bool is_given) {
  if (is_given) return KILN_OK;
  return kiln_diag_fail(diag, KILN_BAD_INPUT, function, "%s: must not be NULL", name);
}

kiln_status kiln_diag_fail(kiln_diag *diag, kiln_status status, const char *place,
                           const char *format, ...) {
  va_list args;
  va_start(args, format);
  append(diag, place, "error", format, args);
  va_end(args);
  return status;
}

void kiln_diag_warn(kiln_diag *diag, const char *place, const char *format, ...) {
  va_list args;
  va_start(args, format);
  append(diag, place, "warning", format, args);
  va_end(args);
}

void kiln_diag_append(kiln_diag *to, const kiln_diag *from) {
  for (size_t i = 0; to && i < kiln_diag_count(from); i++)
    take(to, strdup(kiln_diag_message(from, i)),
         kiln_diag_place(from, i) ? strdup(kiln_diag_place(from, i)) : NULL);
}

void kiln_diag_drop(kiln_diag *diag, size_t first, size_t end) {
  if (!diag || end > diag->n) end = diag ? diag->n : 0;
  if (first >= end) return;
  for (size_t i = first; i < end; i++) {
    free(diag->messages[i].text);
    free(diag->messages[i].place);
  }
  memmove(diag->messages + first, diag->messages + end, (diag->n - end) * sizeof *diag->messages);
  diag->n -= end - first;
}

void kiln_diag_drop_repeated(kiln_diag *diag, size_t first, size_t end) {
  for (size_t i = end; diag && i < diag->n;) {
    bool is_repeated = false;
    for (size_t k = first; k < end; k++)
      is_repeated |= diag->messages[i].text && diag->messages[k].text &&
                     strcmp(diag->messages[i].text, diag->messages[k].text) == 0;
    if (is_repeated) kiln_diag_drop(diag, i, i + 1);
    else i++;
  }
}

const char *kiln_status_name(kiln_status status) {
  switch (status) {
  case KILN_OK: return "OK";
  case KILN_BAD_INPUT: return "BAD_INPUT";
  case KILN_UNSUPPORTED: return "UNSUPPORTED";
  case KILN_NO_MEMORY: return "NO_MEMORY";
  case KILN_NO_BUDGET: return "NO_BUDGET";
  case KILN_DEVICE_ERROR: return "DEVICE_ERROR";
  case KILN_INTERNAL: return "INTERNAL";
  }
  return "?";
}
