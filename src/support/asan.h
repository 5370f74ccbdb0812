// Poisoning of unused memory for AddressSanitizer; no-ops in other builds.
#ifndef KILN_SUPPORT_ASAN_H
#define KILN_SUPPORT_ASAN_H

#if defined(__SANITIZE_ADDRESS__)
#define KILN_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KILN_HAS_ASAN 1
#endif
#endif

#ifdef KILN_HAS_ASAN
#include <sanitizer/asan_interface.h>
#define KILN_POISON(at, n) __asan_poison_memory_region((at), (n))
#define KILN_UNPOISON(at, n) __asan_unpoison_memory_region((at), (n))
#else
#define KILN_HAS_ASAN 0
#define KILN_POISON(at, n) ((void)(at), (void)(n))
#define KILN_UNPOISON(at, n) ((void)(at), (void)(n))
#endif

#endif
