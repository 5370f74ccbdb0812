// Regions of kernels of two programs that compute the same.
#include "unit/fixture.h"

#include "orchestrate/regions.h"

#include <string.h>

// Two products of X and their sum; independently, two statements of Z.
static const char before[] =
    "p { in f32 X(4, 6) in f32 Z(4) const f32 A(6, 5) = ... const f32 B(6, 5) = ... temp f32 P(4, "
    "5) temp f32 Q(4, 5)\n"
    "temp f32 U(4) out f32 Y(4, 5) out f32 V(4)\n"
    "P(i0:4, i1:5 | r0:6) +=! X(i0, r0)*A(r0, i1) Q(i0:4, i1:5 | r0:6) +=! X(i0, r0)*B(r0, i1)\n"
    "Y(i0:4, i1:5) = P(i0, i1) + Q(i0, i1) U(i0:4) = exp(Z(i0)) V(i0:4) = exp(U(i0)) }";
// The products are one.
static const char after[] =
    "p { in f32 X(4, 6) in f32 Z(4) const f32 C(6, 10) = ... temp f32 T(4, 10)\n"
    "temp f32 U(4) out f32 Y(4, 5) out f32 V(4)\n"
    "T(i0:4, i1:10 | r0:6) +=! X(i0, r0)*C(r0, i1) Y(i0:4, i1:5) = T(i0, i1) + T(i0, i1 + 5)\n"
    "U(i0:4) = exp(Z(i0)) V(i0:4) = exp(U(i0)) }";

// A kernel of statements |first| to |last| that takes |ns|.
static void add(fixture *f, kiln_orchestration *o, int first, int last, double ns) {
  kiln_orchestrated_kernel k = {.ns = ns};
  k.group.stmts = KILN_NEW_ARRAY(&f->cx.perm, int, last - first + 1);
  for (int i = first; i <= last; i++) k.group.stmts[k.group.n_stmts++] = i;
  KILN_VEC_PUSH(&f->cx.perm, &o->kernels, k);
}

static const kiln_cost_region *find(fixture *f, const kiln_regions *r, const char *tensor) {
  return kiln_regions_find(r, kiln_symbol_of(&f->cx, tensor));
}

static void expect(const kiln_cost_region *r, double first, double second) {
  assert_non_null(r);
  assert_float_equal(r->ns[0], first, 0);
  assert_float_equal(r->ns[1], second, 0);
}

static void kernels_of_the_same_statements_are_compared(void **state) {
  fixture *f = *state;
  kiln_program *p[2] = {NULL, NULL};
  kiln_orchestration chosen[2] = {{0}, {0}};
  assert_int_equal(kiln_program_parse(&f->cx, before, &p[0]), KILN_OK);
  assert_int_equal(kiln_program_parse(&f->cx, after, &p[1]), KILN_OK);
  add(f, &chosen[0], 0, 0, 10);
  add(f, &chosen[0], 1, 1, 20);
  add(f, &chosen[0], 2, 2, 5);
  add(f, &chosen[0], 3, 4, 100);
  add(f, &chosen[1], 0, 0, 25);
  add(f, &chosen[1], 1, 1, 6);
  add(f, &chosen[1], 2, 2, 40);
  add(f, &chosen[1], 3, 3, 70);
  const kiln_orchestrated two[] = {{p[0], &chosen[0]}, {p[1], &chosen[1]}};
  const kiln_regions regions = kiln_regions_make(&f->cx, two);
  const kiln_cost_region *products = find(f, &regions, "P");
  expect(products, 35, 31);
  assert_ptr_equal(find(f, &regions, "Q"), products);
  assert_ptr_equal(find(f, &regions, "T"), products);
  assert_ptr_equal(find(f, &regions, "Y"), products);
  expect(find(f, &regions, "U"), 100, 110);
  assert_ptr_equal(find(f, &regions, "V"), find(f, &regions, "U"));
  assert_null(find(f, &regions, "X"));
}

// A concatenation in place of a product has no kernel; its reader is in another region.
static void what_is_assembled_belongs_to_its_pieces(void **state) {
  fixture *f = *state;
  static const char *const texts[] = {
      "p { in f32 X(4) temp f32 P(4) temp f32 C(8) out f32 Y(8)\n"
      "P(i0:4) = exp(X(i0)) C(i0:8) = i0 < 4 ? P(i0) : X(i0 - 4) Y(i0:8) = exp(C(i0)) }",
      "p { in f32 X(4) temp f32 Q(4, 2) temp f32 C(8) out f32 Y(8)\n"
      "Q(i0:4, i1:2) = exp(X(i0)) C(i0:8) = i0 < 4 ? Q(i0, 0) : X(i0 - 4) Y(i0:8) = exp(C(i0)) }"};
  kiln_program *p[2] = {NULL, NULL};
  kiln_orchestration chosen[2] = {{0}, {0}};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(kiln_program_parse(&f->cx, texts[i], &p[i]), KILN_OK);
    add(f, &chosen[i], 0, 0, 3 + i);
    add(f, &chosen[i], 2, 2, 10);
  }
  add(f, &chosen[1], 1, 1, 7);
  const kiln_orchestrated two[] = {{p[0], &chosen[0]}, {p[1], &chosen[1]}};
  const kiln_regions regions = kiln_regions_make(&f->cx, two);
  expect(find(f, &regions, "P"), 3, 11);
  assert_ptr_equal(find(f, &regions, "Q"), find(f, &regions, "P"));
  expect(find(f, &regions, "Y"), 10, 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {FIXTURE_TEST(kernels_of_the_same_statements_are_compared),
                                     FIXTURE_TEST(what_is_assembled_belongs_to_its_pieces)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
