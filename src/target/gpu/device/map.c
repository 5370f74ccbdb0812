// Tensor maps: matrices by rows and columns, or images in im2col mode (im2col.h).
#include "target/gpu/device/map.h"

#include "support/integer.h"
#include "target/instr.h"

#include <string.h>

const kiln_expr *kiln_tile_begin(kiln_ctx *cx, const kiln_expr *operand) {
  kiln_symbol vars[KILN_MAX_TILE_RANK];
  const kiln_expr *zeros[KILN_MAX_TILE_RANK];
  for (int k = 0; k < KILN_MAX_TILE_RANK; k++) {
    vars[k] = kiln_tile_var(cx, k);
    zeros[k] = kiln_int(cx, 0);
  }
  return kiln_expr_substitute(cx, operand, KILN_MAX_TILE_RANK, vars, zeros);
}

// The axis of the source along which the tile's columns lie.
static int column_of(const kiln_gpu_nest *n, const kiln_expr *from) {
  int k = 0;
  while (k + 1 < from->n_args && !kiln_expr_uses(from->args[k], kiln_tile_var(n->cx, 1))) k++;
  return k;
}

bool kiln_device_map_is_same(const kiln_gpu_map *a, const kiln_gpu_map *b) {
  bool is = a->arg == b->arg && a->columns == b->columns && a->box_rows == b->box_rows &&
            a->box_columns == b->box_columns;
  for (int k = 0; k < KILN_MAP_AXES; k++)
    is &= a->rows[k] == b->rows[k] && a->pitches[k] == b->pitches[k];
  for (int k = 0; k < 2; k++)
    is &= a->steps[k] == b->steps[k] && a->lower[k] == b->lower[k] && a->upper[k] == b->upper[k];
  return is;
}

// The rows of a matrix, or of an image in im2col mode.
static void find_rows(const kiln_gpu_nest *n, const kiln_loop *tma, kiln_gpu_map *map) {
  const kiln_expr *from = tma->operands[1];
  const kiln_buffer *b = n->l->buffers.data[from->u.tensor];
  const kiln_im2col *w = kiln_gpu_found_of(n, tma)->im2col;
  const int column = column_of(n, from);
  const int64_t pitch = kiln_instr_distance(n->cx, n->l, from, 0);
  if (w) {
    map->columns = w->channels;
    memcpy(map->rows, w->sizes, sizeof map->rows);
    memcpy(map->pitches, w->strides, sizeof map->pitches);
    memcpy(map->steps, w->steps, sizeof map->steps);
    memcpy(map->lower, w->lower, sizeof map->lower);
    memcpy(map->upper, w->upper, sizeof map->upper);
  } else if (kiln_gpu_is_matrix(n, from)) {
    map->pitches[0] = pitch;
    map->columns = b->extents[column];
    map->rows[0] = 1;
    for (int k = 0; k < b->rank; k++)
      if (k != column) map->rows[0] += (b->extents[k] - 1) * b->strides[k] / pitch;
  } else {
    map->columns = map->pitches[0] = pitch;
    map->rows[0] = kiln_divide_up(kiln_buffer_elems(b), pitch);
  }
}

int kiln_device_map_of(kiln_gpu_nest *n, const kiln_loop *tma, int64_t sharers) {
  const kiln_buffer *tile = tma->instr->loops->buffers.data[1];
  kiln_gpu_map map = {.arg = tma->operands[1]->u.tensor,
                      .box_rows = tile->extents[0] / sharers,
                      .box_columns = tile->extents[1]};
  find_rows(n, tma, &map);
  int at = 0;
  while (at < n->maps.n && !kiln_device_map_is_same(&n->maps.data[at], &map)) at++;
  if (at == n->maps.n) KILN_VEC_PUSH(&n->cx->perm, &n->maps, map);
  return at;
}

// Of a matrix.
static void find_corner(const kiln_gpu_nest *n, const kiln_expr *operand, const kiln_gpu_map *map,
                        const kiln_expr **out_row, const kiln_expr **out_column) {
  kiln_ctx *cx = n->cx;
  const kiln_expr *from = kiln_tile_begin(cx, operand), *pitch = kiln_int(cx, map->pitches[0]);
  const kiln_buffer *b = n->l->buffers.data[from->u.tensor];
  const int column = column_of(n, operand);
  const kiln_expr *row = kiln_int(cx, 0), *at = kiln_gpu_element_offset(n, from);
  const bool is_matrix = kiln_gpu_is_matrix(n, operand);
  for (int k = 0; k < b->rank && is_matrix; k++)
    if (k != column)
      row = kiln_add(cx, row,
                     kiln_mul(cx, from->args[k], kiln_int(cx, b->strides[k] / map->pitches[0])));
  *out_row = is_matrix ? row : kiln_div(cx, at, pitch);
  *out_column = is_matrix ? from->args[column] : kiln_mod(cx, at, pitch);
}

int kiln_device_place_of(const kiln_gpu_nest *n, const kiln_loop *tma, int map,
                         const kiln_expr **out) {
  const kiln_im2col *w = kiln_gpu_found_of(n, tma)->im2col;
  int at = 0;
  if (!w) {
    find_corner(n, tma->operands[1], &n->maps.data[map], &out[1], &out[0]);
    return 2;
  }
  out[at++] = w->channel;
  for (int a = 0; a < KILN_IM2COL_AXES; a++) out[at++] = w->first[a];
  for (int a = 0; a < 2; a++) out[at++] = w->offsets[a];
  return at;
}
