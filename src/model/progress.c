// Reports during compilation: times of passes, output, progress.
#include "model/model.h"

#include <time.h>

double kiln_now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void kiln_model_time(kiln_model *m, const char *pass, double start_ms) {
  const kiln_pass_time time = {pass, kiln_now_ms() - start_ms};
  for (int i = m->n_load_times; i < m->times.n; i++) // of another shape bucket
    if (strcmp(m->times.data[i].name, pass) == 0) {
      m->times.data[i].ms += time.ms;
      return;
    }
  KILN_VEC_PUSH(&m->core->cx.perm, &m->times, time);
}

bool kiln_list_has(const char *list, const char *word) {
  const size_t n = strlen(word);
  for (const char *at = list; at && *at; at += *at == ',') {
    size_t k = strcspn(at, ",");
    if (k == n && strncmp(at, word, n) == 0) return true;
    at += k;
  }
  return false;
}

bool kiln_model_dumps(const kiln_model *m, const char *level) {
  return m->options.on_dump && kiln_list_has(m->options.dump, level);
}

void kiln_model_dump(const kiln_model *m, const char *level, const kiln_text *text) {
  m->options.on_dump(m->options.dump_user, level, text->data ? text->data : "");
}

void kiln_model_progress(const kiln_model *m, const char *phase, size_t done, size_t total) {
  if (m->options.on_progress) m->options.on_progress(m->options.progress_user, phase, done, total);
}
