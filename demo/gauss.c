/* Gaussian elimination with OpenMP: one short parallel loop for each pivot, and a barrier after it.
 *
 * gauss SIZE TIMES solves a system of SIZE equations TIMES times and prints one line of JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double *matrix, *right;

static void fill(int n) {
  unsigned long long x = 1;
  for (int row = 0; row < n; row++) {
    double sum = 0;
    for (int column = 0; column < n; column++) {
      x = x * 6364136223846793005ULL + 1442695040888963407ULL;
      double value = (double)(x >> 40) / (1 << 24) - 0.5 + (row == column ? n : 0);
      matrix[(size_t)row * n + column] = value;
      sum += value;
    }
    right[row] = sum; /* so that every unknown is 1 */
  }
}

static double solve(int n) {
  for (int pivot = 0; pivot < n - 1; pivot++) {
    const double *above = matrix + (size_t)pivot * n;
#pragma omp parallel for schedule(static)
    for (int row = pivot + 1; row < n; row++) {
      double *here = matrix + (size_t)row * n;
      double factor = here[pivot] / above[pivot];
      for (int column = pivot; column < n; column++)
        here[column] -= factor * above[column];
      right[row] -= factor * right[pivot];
    }
  }
  double worst = 0;
  for (int row = n - 1; row >= 0; row--) {
    for (int column = row + 1; column < n; column++)
      right[row] -= matrix[(size_t)row * n + column] * right[column];
    right[row] /= matrix[(size_t)row * n + row];
    worst = fmax(worst, fabs(right[row] - 1));
  }
  return worst;
}

int main(int argc, char **argv) {
  int n = argc > 1 ? atoi(argv[1]) : 500;
  int times = argc > 2 ? atoi(argv[2]) : 10;
  if (n < 2 || n > 20000 || times < 1) {
    fprintf(stderr, "usage: gauss SIZE TIMES\n");
    return 2;
  }
  matrix = malloc(sizeof(double) * n * n);
  right = malloc(sizeof(double) * n);
  if (!matrix || !right) {
    fprintf(stderr, "gauss: no memory for %d equations\n", n);
    return 1;
  }
  double worst = 0;
  for (int time = 0; time < times; time++) {
    fill(n);
    worst = fmax(worst, solve(n));
  }
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  printf("{\"finished_at_ns\": %lld, \"error\": %g}\n",
         now.tv_sec * 1000000000LL + now.tv_nsec, worst);
  return worst < 1e-6 ? 0 : 1;
}
