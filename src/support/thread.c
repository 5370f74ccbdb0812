#include "support/thread.h"
#include "support/surroundings.h"

#include <signal.h>
#include <stdlib.h>

typedef struct beginning {
  void *(*body)(void *);
  void *argument;
} beginning;

static void *begin(void *argument) {
  beginning *b = argument;
  const beginning own = *b;
  free(b);
  const kiln_surroundings before = kiln_surroundings_begin();
  void *const result = own.body(own.argument);
  kiln_surroundings_end(before);
  return result;
}

bool kiln_thread_start(pthread_t *out, const pthread_attr_t *attributes, void *(*body)(void *),
                       void *argument) {
  sigset_t all, before;
  beginning *b = malloc(sizeof *b);
  if (!b) return false;
  *b = (beginning){body, argument};
  sigfillset(&all);
  const bool is_blocked = pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
  const bool is_started = pthread_create(out, attributes, begin, b) == 0;
  if (is_blocked) pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!is_started) free(b);
  return is_started;
}
