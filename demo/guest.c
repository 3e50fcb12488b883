/* A guest for QEMU without an operating system: its CPUs compute, and meet at barriers at which
 * they spin, as the locks of a kernel do.
 *
 * Of its command line, CPUS SIZE TIMES, it computes SIZE steps between two barriers, 100 barriers
 * for each of TIMES, on so many CPUs, and turns the machine off. A wrong result ends QEMU with a
 * failure.
 *
 * Compiled with -m32 -ffreestanding -nostdlib; QEMU starts it by -kernel (Multiboot Specification
 * 0.6.96), in protected mode without paging. */

enum { CPUS_MAX = 255, BARRIERS = 100, STACK = 4096 };

/* The first CPU begins at `start`. The others begin in real mode, at a page that is named in the
 * interrupt that starts them, to which `others` is copied. */
__asm__(".section .text\n"
        ".align 4\n"
        ".long 0x1badb002, 0, -0x1badb002\n" /* the header: magic, flags, checksum */
        ".global start\n"
        "start:\n"
        "  mov $stacks + 4096, %esp\n"
        "  push %ebx\n"
        "  call first\n"
        ".code16\n"
        "others:\n"
        "  cli\n"
        "  xor %ax, %ax\n"
        "  mov %ax, %ds\n"
        "  lgdtl 0x8000 + table_of_segments - others\n"
        "  mov %cr0, %eax\n"
        "  or $1, %al\n"
        "  mov %eax, %cr0\n"
        "  ljmpl $8, $protected\n"
        ".align 8\n"
        "segments:\n"
        "  .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff\n" /* code and data, all of memory */
        "table_of_segments:\n"
        "  .word 23\n"
        "  .long segments\n"
        "others_end:\n"
        ".code32\n"
        "protected:\n"
        "  mov $16, %ax\n"
        "  mov %ax, %ds\n"
        "  mov %ax, %es\n"
        "  mov %ax, %ss\n"
        "  mov $1, %eax\n"
        "  lock xadd %eax, started\n"
        "  mov %eax, %esp\n"
        "  inc %esp\n"
        "  shl $12, %esp\n" /* STACK */
        "  add $stacks, %esp\n"
        "  push %eax\n"
        "  call compute\n");

extern const unsigned char others[], others_end[];

char stacks[CPUS_MAX * STACK] __attribute__((aligned(16)));
/* CPUs that have begun; each has its number of it. */
unsigned started = 1;
static unsigned size, times, cpus;
/* A value of each CPU, in turns in one row and in the other. */
static volatile unsigned values[2][CPUS_MAX];

static void out_byte(unsigned short port, unsigned char value) {
  __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static void out_word(unsigned short port, unsigned short value) {
  __asm__ volatile("outw %0, %1" : : "a"(value), "Nd"(port));
}

_Noreturn static void halt(void) {
  for (;;)
    __asm__ volatile("cli; hlt");
}

_Noreturn static void fail(void) {
  out_byte(0x501, 1); /* isa-debug-exit */
  halt();
}

static void barrier(void) {
  static unsigned arrived, generation;
  unsigned now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL) == cpus) {
    arrived = 0;
    __atomic_store_n(&generation, now + 1, __ATOMIC_RELEASE);
  } else {
    while (__atomic_load_n(&generation, __ATOMIC_ACQUIRE) == now)
      __builtin_ia32_pause();
  }
}

/* One step of a generator of pseudo-random numbers. */
static unsigned step(unsigned value) { return value * 1664525 + 1013904223; }

/* So many steps at once, by squares of them. */
static unsigned leap(unsigned value, unsigned steps) {
  unsigned factor = 1664525, summand = 1013904223;
  for (; steps; steps >>= 1) {
    if (steps & 1)
      value = value * factor + summand;
    summand *= factor + 1;
    factor *= factor;
  }
  return value;
}

/* Between two barriers each CPU goes on with the value of its neighbour. */
_Noreturn void compute(unsigned cpu) {
  unsigned rounds = times * BARRIERS;
  for (unsigned round = 0; round < rounds; round++) {
    unsigned value = values[round % 2][(cpu + 1) % cpus];
    for (unsigned of = 0; of < size; of++) {
      value = step(value);
      __asm__ volatile("" : "+r"(value)); /* so that no compiler leaps */
    }
    values[(round + 1) % 2][cpu] = value;
    barrier();
  }
  if (cpu)
    halt();
  for (unsigned of = 0; of < cpus; of++) {
    if (values[rounds % 2][of] != leap((of + rounds) % cpus, rounds * size))
      fail();
  }
  out_word(0x604, 0x2000); /* the power management of QEMU's machine `pc`: off */
  halt();
}

/* The word before `*end`, as a number; `*end` is then where it begins. */
static unsigned last_number(const char *text, unsigned *end) {
  unsigned number = 0;
  while (*end && text[*end - 1] == ' ')
    --*end;
  for (unsigned digit = 1; *end && text[*end - 1] != ' '; digit *= 10)
    number += (unsigned)(text[--*end] - '0') * digit;
  return number;
}

/* The registers by which a CPU interrupts others. */
static void interrupt_all_others(unsigned how) {
  volatile unsigned *command = (volatile unsigned *)0xfee00300;
  *command = 0xc0000 | how;
  while (*command & 0x1000)
    __builtin_ia32_pause();
}

_Noreturn void first(const unsigned *multiboot) {
  const char *line = (const char *)multiboot[4];
  unsigned end = 0;
  while (line[end])
    end++;
  times = last_number(line, &end);
  size = last_number(line, &end);
  cpus = last_number(line, &end);
  if (!size || !times || !cpus || cpus > CPUS_MAX)
    fail();
  for (unsigned cpu = 0; cpu < cpus; cpu++)
    values[0][cpu] = cpu;
  for (unsigned of = 0; of < (unsigned)(others_end - others); of++)
    ((volatile unsigned char *)0x8000)[of] = others[of];
  interrupt_all_others(0x4500); /* INIT */
  /* One that is not reset yet does not hear of its start, and one that has begun minds no other. */
  while (__atomic_load_n(&started, __ATOMIC_ACQUIRE) < cpus) {
    interrupt_all_others(0x4608); /* start at page 8 */
    for (int of = 0; of < 1000; of++)
      __builtin_ia32_pause();
  }
  compute(0);
}
