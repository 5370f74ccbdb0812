// Threads of Kiln's own.
#ifndef KILN_SUPPORT_THREAD_H
#define KILN_SUPPORT_THREAD_H

#include <pthread.h>
#include <stdbool.h>

// Starts a thread that is the caller's business in nothing: it blocks all signals, so that the
// process's handlers run on the threads that they would without Kiln, and has surroundings of its
// own (support/surroundings.h). |attributes| may be NULL.
//
// gives: false where the system or the memory does not give it
bool kiln_thread_start(pthread_t *out, const pthread_attr_t *attributes, void *(*body)(void *),
                       void *argument);

#endif
