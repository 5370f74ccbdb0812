// Kiln's threads.
#ifndef KILN_SUPPORT_THREAD_H
#define KILN_SUPPORT_THREAD_H

#include <pthread.h>
#include <stdbool.h>

// Starts a thread that does not disturb the application: it blocks all signals, so that the
// process's handlers run on the application's threads, and has its own floating-point environment
// and locale (support/surroundings.h). |attributes| may be NULL.
//
// gives: false if the system refuses a thread
bool kiln_thread_start(pthread_t *out, const pthread_attr_t *attributes, void *(*body)(void *),
                       void *argument);

#endif
