// The floating-point environment and locale of a thread. Callers may have set another rounding
// mode, flushing of subnormals, exception traps, or a locale with decimal commas. Kiln sets what it
// needs when its work begins and restores the caller's state at the end: round to nearest,
// subnormals kept, no traps, locale "C".
#ifndef KILN_SUPPORT_SURROUNDINGS_H
#define KILN_SUPPORT_SURROUNDINGS_H

#include <locale.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// The floating-point environment only: some 10 ns, for frequent calls. Avoids <fenv.h>, which would
// need libm.
typedef struct kiln_floating {
  uint64_t control; // MXCSR or FPCR, on x86-64 with its flags
  uint16_t x87;
} kiln_floating;

static inline kiln_floating kiln_floating_begin(void) {
  kiln_floating before = {0, 0};
#if defined(__x86_64__)
  enum { NEAREST = 0x1f80, EXTENDED = 0x037f }; // all exceptions masked
  const uint16_t x87 = EXTENDED;
  before.control = _mm_getcsr();
  __asm__ volatile("fnstcw %0" : "=m"(before.x87));
  _mm_setcsr(NEAREST);
  __asm__ volatile("fldcw %0" : : "m"(x87));
#elif defined(__aarch64__)
  __asm__ volatile("mrs %0, fpcr" : "=r"(before.control));
  __asm__ volatile("msr fpcr, %0" : : "r"(UINT64_C(0)));
#endif
  return before;
}

static inline void kiln_floating_end(kiln_floating before) {
#if defined(__x86_64__)
  // Pending exception flags must not trap.
  __asm__ volatile("fnclex\n\tfldcw %0" : : "m"(before.x87));
  _mm_setcsr((unsigned)before.control);
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(before.control));
#else
  (void)before;
#endif
}

typedef struct kiln_surroundings {
  kiln_floating floating;
  locale_t locale, own;
} kiln_surroundings;

static inline kiln_surroundings kiln_surroundings_begin(void) {
  kiln_surroundings before = {.floating = kiln_floating_begin(),
                              .own = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
  before.locale = uselocale(before.own); // unchanged if there is no memory for one
  return before;
}

static inline void kiln_surroundings_end(kiln_surroundings before) {
  uselocale(before.locale);
  if (before.own) freelocale(before.own); // which libc keeps: nothing was allocated
  kiln_floating_end(before.floating);
}

#endif
