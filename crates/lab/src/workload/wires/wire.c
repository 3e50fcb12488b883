/* Two processes of one host that send messages to and fro by a library: the time of an 8-byte
 * message, and that of 1 MiB messages in a row.
 *
 * wire SECONDS CPU CPU NAME prints one line of JSON. NAME is what the library is asked for. The
 * file of a library follows this one: it defines wire_open, post, is_done and progress. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  SHORT = 8,
  LONG = 1 << 20,
  /* Round trips and long messages that are timed together. */
  TRIPS = 16,
  WINDOW = 8,
  /* Windows of which every word is verified, before any is timed. */
  VERIFIED = 4,
  WARM = 200,
  KEPT = 20000,
};
/* In a short message: the sender sends no more of the kind. */
#define LAST (UINT64_C(1) << 63)

struct shared {
  atomic_int arrived;
  struct {
    atomic_int length;
    char bytes[4096];
  } address[2];
  _Atomic uint64_t wrong, messages;
};

static struct shared *shared;
static int side;
static char *name;

static void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  _exit(1);
}

/* Opens the library, shows this side's address, and takes the other's. */
static void wire_open(void);
/* Begins to send or receive, as operation number `at` of WINDOW. */
static void post(int is_send, void *buffer, size_t size, int at);
static int is_done(int at);
static void progress(void);

static void show_address(const void *bytes, size_t length) {
  if (length > sizeof shared->address[0].bytes)
    die("an address of %zu bytes", length);
  memcpy(shared->address[side].bytes, bytes, length);
  atomic_store(&shared->address[side].length, (int)length);
}

static const void *other_address(void) {
  while (!atomic_load(&shared->address[1 - side].length))
    sched_yield();
  return shared->address[1 - side].bytes;
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void wait_for(int count) {
  for (int at = 0; at < count; at++)
    while (!is_done(at))
      progress();
}

static void send_one(uint64_t value) {
  static uint64_t out;
  out = value;
  post(1, &out, SHORT, 0);
  wait_for(1);
}

static uint64_t receive_one(void) {
  static uint64_t in;
  post(0, &in, SHORT, 0);
  wait_for(1);
  return in;
}

/* All sides come to this point before any goes on. */
static void meet(int times) {
  atomic_fetch_add(&shared->arrived, 1);
  while (atomic_load(&shared->arrived) < 2 * times) {
    progress();
    sched_yield();
  }
}

static void expect(uint64_t is, uint64_t must) { shared->wrong += is != must; }

static uint64_t to_and_fro(uint64_t number, int trips, uint64_t *last) {
  uint64_t got = 0;
  for (int trip = 0; trip < trips; trip++, number++) {
    uint64_t mark = *last && trip == trips - 1 ? LAST : 0;
    if (side == 0)
      send_one(number | mark);
    got = receive_one();
    expect(got & ~LAST, number);
    if (side == 1)
      send_one(got);
  }
  *last |= got & LAST;
  if (side == 0)
    shared->messages += 2 * (uint64_t)trips;
  return number;
}

static char *buffers[WINDOW];

static uint64_t word(uint64_t window, int at, size_t index) {
  return (window << 32 | (uint64_t)at << 24) ^ index * UINT64_C(0x9E3779B97F4A7C15);
}

/* A window of long messages, and a short one back. Every word is verified, or the ends. */
static void in_a_row(uint64_t window, int whole) {
  size_t words = LONG / sizeof(uint64_t), step = whole ? 1 : words - 1;
  if (side == 0) {
    for (int at = 0; at < WINDOW; at++)
      for (size_t index = 0; index < words; index += step)
        ((uint64_t *)buffers[at])[index] = word(window, at, index);
    for (int at = 0; at < WINDOW; at++)
      post(1, buffers[at], LONG, at);
    wait_for(WINDOW);
    expect(receive_one(), window);
  } else {
    for (int at = 0; at < WINDOW; at++)
      post(0, buffers[at], LONG, at);
    wait_for(WINDOW);
    for (int at = 0; at < WINDOW; at++)
      for (size_t index = 0; index < words; index += step)
        expect(((uint64_t *)buffers[at])[index], word(window, at, index));
    send_one(window);
    shared->messages += WINDOW + 1;
  }
}

static void print(const char *key, const uint64_t *times, int count) {
  printf("\"%s\": [", key);
  for (int at = 0; at < count; at++)
    printf(at ? ",%llu" : "%llu", (unsigned long long)times[at]);
  printf("], ");
}

static void run(double seconds) {
  static uint64_t trips[KEPT], windows[KEPT];
  int trip_count = 0, window_count = 0;
  uint64_t half_ns = (uint64_t)(seconds * 5e8);
  for (int at = 0; at < WINDOW; at++) {
    buffers[at] = mmap(0, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffers[at] == MAP_FAILED)
      die("no memory");
    memset(buffers[at], 1, LONG);
  }
  wire_open();
  meet(1);
  uint64_t last = 0, number = to_and_fro(1, WARM, &last);
  uint64_t end_ns = now_ns() + half_ns;
  while (!last) {
    uint64_t began_ns = now_ns();
    last = side == 0 && (began_ns >= end_ns || trip_count == KEPT - 1) ? LAST : 0;
    number = to_and_fro(number, TRIPS, &last);
    trips[trip_count < KEPT ? trip_count++ : 0] = now_ns() - began_ns;
  }
  uint64_t window = 1;
  while (window <= VERIFIED)
    in_a_row(window++, 1);
  end_ns = now_ns() + half_ns;
  for (last = 0; !last; window++) {
    uint64_t began_ns = now_ns();
    in_a_row(window, 0);
    windows[window_count < KEPT ? window_count++ : 0] = now_ns() - began_ns;
    last = side == 0 && (now_ns() >= end_ns || window_count == KEPT) ? LAST : 0;
    if (side == 0)
      send_one(last);
    else
      last = receive_one();
  }
  meet(2);
  if (side == 1)
    return;
  printf("{\"trips\": %d, \"window_bytes\": %llu, ", TRIPS, (unsigned long long)WINDOW * LONG);
  print("trips_ns", trips, trip_count);
  print("windows_ns", windows, window_count);
  printf("\"messages\": %llu, \"wrong\": %llu}\n", (unsigned long long)shared->messages,
         (unsigned long long)shared->wrong);
  fflush(stdout);
}

/* The other side is gone, and nothing will come any more. */
static void child_ended(int signal) {
  (void)signal;
  int status = 0;
  if (waitpid(-1, &status, WNOHANG) > 0 && status != 0)
    _exit(1);
}

int main(int argc, char **argv) {
  if (argc != 5)
    die("wire SECONDS CPU CPU NAME");
  name = argv[4];
  shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    die("no memory");
  signal(SIGCHLD, child_ended);
  pid_t parent = getpid();
  side = fork() == 0;
  if (side == 1) {
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
      _exit(1);
  }
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(atoi(argv[2 + side]), &cpus);
  sched_setaffinity(0, sizeof cpus, &cpus);
  run(atof(argv[1]));
  return 0;
}
