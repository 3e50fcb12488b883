/* The communication patterns of six of the NAS Parallel Benchmarks, with every word verified.
 * page.c precedes this file. patterns PAGE PATTERN goes on until the page says that it is enough.
 *
 * lu  a pipeline: planes of a wavefront, with short messages, to and fro
 * cg  a sparse exchange: a piece of a vector with a partner, and two sums, in each iteration
 * mg  a multigrid: halos of both neighbours on five levels, down and up
 * sp  three sweeps with larger halos of both neighbours
 * is  keys: sizes of buckets, then each key to the rank that it belongs to
 * ft  a transpose: a block from each rank to each other */
#include <stdio.h>
#include <string.h>

enum {
  STOP = 62,
  OF_RANK = 64,
  FIGURES = 8,
  RANKS_MAX = 32,
  PLANES = 32,
  PLANE_WORDS = 160,
  ITERATIONS = 10,
  VECTOR_WORDS = 3500,
  LEVELS = 5,
  HALO_WORDS = 2048,
  SWEEPS = 3,
  FACE_WORDS = 8192,
  KEYS = 1 << 16,
  BUCKETS = 512,
  BLOCK_WORDS = 1 << 16,
  CELLS = 1 << 13,
};
enum { SENT, RECEIVED, LOST, DOUBLED, WRONG };

static volatile int64_t *figures;
static uint64_t next_out[RANKS_MAX], next_in[RANKS_MAX];
static double cells[CELLS];

static void compute(int times) {
  for (int time = 0; time < times; time++)
    for (int cell = 1; cell < CELLS - 1; cell++)
      cells[cell] = 0.25 * cells[cell - 1] + 0.5 * cells[cell] + 0.25 * cells[cell + 1];
}

static uint64_t word(int from, uint64_t number, int at) {
  return (number << 8 | (uint64_t)from) * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)at;
}

/* The next message to a rank: its number, then words that follow from it. */
static void fill(uint64_t *message, int words, int to) {
  uint64_t number = next_out[to]++;
  message[0] = number;
  for (int at = 1; at < words; at++)
    message[at] = word(rank, number, at);
  figures[SENT]++;
}

/* Numbers before the one that is due were here, numbers after it say what was not. */
static void check(const uint64_t *message, int words, int from) {
  uint64_t number = message[0];
  figures[RECEIVED]++;
  if (number < next_in[from])
    figures[DOUBLED]++;
  else {
    figures[LOST] += (int64_t)(number - next_in[from]);
    next_in[from] = number + 1;
  }
  int wrong = 0;
  for (int at = 1; at < words; at++)
    wrong += message[at] != word(from, number, at);
  figures[WRONG] += wrong;
}

static void send_to(int to, int words) {
  static uint64_t message[FACE_WORDS];
  fill(message, words, to);
  MPI_Send(message, words, MPI_UINT64_T, to, 0, MPI_COMM_WORLD);
}

static void receive_from(int from, int words) {
  static uint64_t message[FACE_WORDS];
  MPI_Recv(message, words, MPI_UINT64_T, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  check(message, words, from);
}

static void swap(int to, int from, int words) {
  static uint64_t out[FACE_WORDS], in[FACE_WORDS];
  fill(out, words, to);
  MPI_Sendrecv(out, words, MPI_UINT64_T, to, 0, in, words, MPI_UINT64_T, from, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  check(in, words, from);
}

static void halo(int words) {
  int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  swap(right, left, words);
  swap(left, right, words);
}

/* The sum of a number over all ranks, of which it is known what it must be. */
static void sum(void) {
  double own = rank + 1, all = 0;
  MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  figures[WRONG] += all != 0.5 * ranks * (ranks + 1);
}

static void lu(void) {
  for (int plane = 0; plane < PLANES; plane++) {
    if (rank > 0)
      receive_from(rank - 1, PLANE_WORDS);
    compute(2);
    if (rank < ranks - 1)
      send_to(rank + 1, PLANE_WORDS);
  }
  for (int plane = 0; plane < PLANES; plane++) {
    if (rank < ranks - 1)
      receive_from(rank + 1, PLANE_WORDS);
    compute(2);
    if (rank > 0)
      send_to(rank - 1, PLANE_WORDS);
  }
}

static void cg(void) {
  int partner = (rank ^ 1) < ranks ? rank ^ 1 : rank;
  for (int iteration = 0; iteration < ITERATIONS; iteration++) {
    compute(8);
    swap(partner, partner, VECTOR_WORDS);
    sum();
    sum();
  }
}

static void mg(void) {
  for (int cycle = 0; cycle < 4; cycle++) {
    for (int level = 0; level < LEVELS; level++) {
      compute(8 >> level);
      halo(HALO_WORDS >> 2 * level);
    }
    for (int level = LEVELS - 1; level >= 0; level--) {
      compute(8 >> level);
      halo(HALO_WORDS >> 2 * level);
    }
  }
}

static void sp(void) {
  for (int sweep = 0; sweep < SWEEPS; sweep++) {
    compute(25);
    halo(FACE_WORDS);
  }
}

/* A rank has the keys whose remainder is its number. A piece begins with its number and its sum. */
static void is(void) {
  static uint64_t keys[KEYS], out[KEYS + 2 * RANKS_MAX], in[2 * KEYS], sums[RANKS_MAX];
  static int buckets[BUCKETS], all[BUCKETS];
  static uint64_t state = 1;
  int counts[RANKS_MAX] = {0}, places[RANKS_MAX], came[RANKS_MAX], places_in[RANKS_MAX];
  memset(buckets, 0, sizeof buckets);
  for (int at = 0; at < KEYS; at++) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407 + (uint64_t)rank;
    keys[at] = state >> 33;
    buckets[keys[at] % BUCKETS]++;
    counts[keys[at] % (uint64_t)ranks]++;
  }
  MPI_Allreduce(buckets, all, BUCKETS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  int keys_of_all = 0;
  for (int bucket = 0; bucket < BUCKETS; bucket++)
    keys_of_all += all[bucket];
  figures[WRONG] += keys_of_all != KEYS * ranks;
  int place = 0, filled[RANKS_MAX];
  for (int to = 0; to < ranks; to++) {
    places[to] = place;
    filled[to] = place + 2;
    place += counts[to] += 2;
    sums[to] = 0;
  }
  for (int at = 0; at < KEYS; at++) {
    uint64_t to = keys[at] % (uint64_t)ranks;
    out[filled[to]++] = keys[at];
    sums[to] += keys[at];
  }
  for (int to = 0; to < ranks; to++) {
    out[places[to]] = next_out[to]++;
    out[places[to] + 1] = sums[to];
  }
  figures[SENT] += ranks;
  MPI_Alltoall(counts, 1, MPI_INT, came, 1, MPI_INT, MPI_COMM_WORLD);
  place = 0;
  for (int from = 0; from < ranks; from++) {
    places_in[from] = place;
    place += came[from];
  }
  if (place > 2 * KEYS)
    MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Alltoallv(out, counts, places, MPI_UINT64_T, in, came, places_in, MPI_UINT64_T,
                MPI_COMM_WORLD);
  for (int from = 0; from < ranks; from++) {
    const uint64_t *piece = in + places_in[from];
    check(piece, 1, from);
    uint64_t sum = 0;
    int wrong = 0;
    for (int key = 2; key < came[from]; key++) {
      sum += piece[key];
      wrong += piece[key] % (uint64_t)ranks != (uint64_t)rank;
    }
    figures[WRONG] += wrong + (sum != piece[1]);
  }
}

static void ft(void) {
  static uint64_t *out, *in;
  size_t words = (size_t)BLOCK_WORDS * (size_t)ranks;
  if (!out) {
    out = malloc(words * sizeof *out);
    in = malloc(words * sizeof *in);
    if (!out || !in)
      MPI_Abort(MPI_COMM_WORLD, 1);
  }
  compute(60);
  for (int to = 0; to < ranks; to++)
    fill(out + (size_t)to * BLOCK_WORDS, BLOCK_WORDS, to);
  MPI_Alltoall(out, BLOCK_WORDS, MPI_UINT64_T, in, BLOCK_WORDS, MPI_UINT64_T, MPI_COMM_WORLD);
  for (int from = 0; from < ranks; from++)
    check(in + (size_t)from * BLOCK_WORDS, BLOCK_WORDS, from);
}

static const struct {
  const char *name;
  void (*step)(void);
} patterns[] = {{"lu", lu}, {"cg", cg}, {"mg", mg}, {"sp", sp}, {"is", is}, {"ft", ft}};

int main(int argc, char **argv) {
  volatile int64_t *page = begin(&argc, &argv);
  void (*step)(void) = 0;
  for (size_t at = 0; at < sizeof patterns / sizeof *patterns; at++)
    if (argc > 2 && !strcmp(argv[2], patterns[at].name))
      step = patterns[at].step;
  if (!step || ranks > RANKS_MAX || ranks < 2) {
    fprintf(stderr, "patterns PAGE lu|cg|mg|sp|is|ft, with 2 to %d ranks\n", RANKS_MAX);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  figures = page + OF_RANK + FIGURES * rank;
  for (int cell = 0; cell < CELLS; cell++)
    cells[cell] = cell;
  for (int is_enough = 0; !is_enough;) {
    step();
    int is_over = page[STOP] != 0;
    MPI_Allreduce(&is_over, &is_enough, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0)
      page[0]++;
  }
  MPI_Finalize();
  return 0;
}
