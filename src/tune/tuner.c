// The part of tuning shared by CPUs and GPUs: the time limit, and storing measurements.
#include "tune/tuning.h"

bool kiln_tuner_is_over(const kiln_tuner *t) {
  const volatile int *stop = t->b->request.model->options.stop;
  return (stop && *stop) || kiln_now_ms() > t->end_ms;
}

kiln_results_key kiln_tuner_candidate_key(const kiln_tuner *t, const kiln_tuning_candidates *r,
                                          int i) {
  const kiln_library_candidate *o = r->at[i].candidate->by_library;
  kiln_results_key key = r->key;
  if (o)
    key.compiler =
        kiln_arena_printf(&t->cx->perm, "%s, %s %s", key.compiler, o->backend, o->version);
  return key;
}

kiln_status kiln_tuner_keep(kiln_tuner *t, kiln_tuning_candidates *r, int i, kiln_verdict verdict,
                            double us) {
  kiln_tuning_candidate *one = &r->at[i];
  kiln_tuning *sum = &t->b->request.model->tuning;
  one->result.verdict = verdict;
  one->result.us = us;
  one->is_known = true;
  sum->candidates++;
  sum->wrong += verdict == KILN_VERDICT_WRONG;
  sum->lost += verdict == KILN_VERDICT_LOST;
  const kiln_results_key key = kiln_tuner_candidate_key(t, r, i);
  return kiln_results_put(t->results, &key, kiln_symbol_text(t->cx, r->kernel->name), &one->result,
                          t->cx->diag);
}
