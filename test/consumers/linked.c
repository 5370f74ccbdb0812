// Calls the model that is linked in.
#include "scale.h"

int main(void) {
  const float x[SCALE_IN_X_ELEMS] = {1, 2, 3, 4};
  float y[SCALE_OUT_Y_ELEMS];
  return scale_run(x, y, NULL) || y[3] != 9;
}
