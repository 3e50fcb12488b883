/* An MPI program that verifies every byte that it gets: ring, all-to-all, any sender, probes,
 * matched probes, cancelled receives, synchronous sends, long messages and many short ones.
 *
 *     messages [ROUNDS]        says "all is well" from rank 0 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, rounds = 1;

static void fail(const char *what, long at)
{
    fprintf(stderr, "rank %d: %s is wrong at %ld\n", rank, what, at);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Bytes that differ by sender, message and place. */
static unsigned char byte(int from, uint32_t number, size_t at)
{
    uint32_t x = (uint32_t)at * 2654435761u ^ number * 40503u ^ (uint32_t)from * 977u;
    return (unsigned char)(x >> 24 ^ x >> 8);
}

static void fill(unsigned char *buffer, int from, uint32_t number, size_t length)
{
    for (size_t i = 0; i < length; i++)
        buffer[i] = byte(from, number, i);
}

static void check(const unsigned char *buffer, int from, uint32_t number, size_t length,
                  const char *what)
{
    for (size_t i = 0; i < length; i++)
        if (buffer[i] != byte(from, number, i))
            fail(what, (long)i);
}

static const size_t lengths[] = {0, 1, 8, 24, 25, 63, 1000, 1408, 4096, 4097, 5000, 65536, 300001};
#define LENGTHS (sizeof lengths / sizeof lengths[0])
#define LONG ((size_t)8 << 20)

static void ring(unsigned char *out, unsigned char *in)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (uint32_t i = 0; i < LENGTHS; i++) {
        fill(out, rank, i, lengths[i]);
        MPI_Sendrecv(out, (int)lengths[i], MPI_BYTE, next, (int)i, in, (int)lengths[i], MPI_BYTE,
                     before, (int)i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(in, before, i, lengths[i], "ring");
    }
}

static void all_to_all(unsigned char *out, unsigned char *in, size_t length)
{
    for (int i = 0; i < size; i++)
        fill(out + (size_t)i * length, rank, (uint32_t)i, length);
    MPI_Alltoall(out, (int)length, MPI_BYTE, in, (int)length, MPI_BYTE, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++)
        check(in + (size_t)i * length, i, (uint32_t)rank, length, "all-to-all");
}

/* The messages of each sender come in order, also where the receiver names nobody. */
static void any_source(unsigned char *buffer)
{
    enum { EACH = 50 };
    if (rank == 0) {
        int got[size];
        memset(got, 0, sizeof got);
        for (int i = 0; i < EACH * (size - 1); i++) {
            MPI_Status status;
            int count;
            MPI_Recv(buffer, 300001, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                     &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            int from = status.MPI_SOURCE;
            if (status.MPI_TAG != got[from] || (size_t)count != lengths[got[from] % LENGTHS])
                fail("order of any source", i);
            check(buffer, from, (uint32_t)got[from], (size_t)count, "any source");
            got[from]++;
        }
    } else {
        for (int i = 0; i < EACH; i++) {
            fill(buffer, rank, (uint32_t)i, lengths[(size_t)i % LENGTHS]);
            MPI_Send(buffer, (int)lengths[(size_t)i % LENGTHS], MPI_BYTE, 0, i, MPI_COMM_WORLD);
        }
    }
}

static void probes(unsigned char *buffer)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size, count, flag = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Message message;
    for (uint32_t i = 0; i < LENGTHS; i++) {
        unsigned char *out = buffer + LONG;
        fill(out, rank, i, lengths[i]);
        MPI_Isend(out, (int)lengths[i], MPI_BYTE, next, 77, MPI_COMM_WORLD, &request);
        if (i % 2) {
            while (!flag)
                MPI_Iprobe(before, 77, MPI_COMM_WORLD, &flag, &status);
            flag = 0;
            MPI_Get_count(&status, MPI_BYTE, &count);
            MPI_Recv(buffer, count, MPI_BYTE, before, 77, MPI_COMM_WORLD, &status);
        } else {
            MPI_Mprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &message, &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            MPI_Mrecv(buffer, count, MPI_BYTE, &message, &status);
        }
        if ((size_t)count != lengths[i])
            fail("length of probe", count);
        check(buffer, before, i, lengths[i], "probe");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Iprobe(MPI_ANY_SOURCE, 78, MPI_COMM_WORLD, &count, &status);
        if (count)
            fail("probe of nothing", 78);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void cancels(unsigned char *buffer)
{
    MPI_Request request;
    MPI_Status status;
    int is_cancelled;
    MPI_Irecv(buffer, 100, MPI_BYTE, MPI_ANY_SOURCE, 4000, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &is_cancelled);
    if (!is_cancelled)
        fail("cancel", 0);
}

static void synchronous(unsigned char *out, unsigned char *in)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (uint32_t i = 0; i < LENGTHS; i++) {
        MPI_Request request;
        fill(out, rank, i, lengths[i]);
        MPI_Issend(out, (int)lengths[i], MPI_BYTE, next, 9, MPI_COMM_WORLD, &request);
        MPI_Recv(in, (int)lengths[i], MPI_BYTE, before, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(in, before, i, lengths[i], "synchronous");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void long_ones(unsigned char *out, unsigned char *in)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    fill(out, rank, 5, LONG);
    memset(in, 0, LONG);
    MPI_Sendrecv(out, (int)LONG, MPI_BYTE, next, 1, in, (int)LONG, MPI_BYTE, before, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(in, before, 5, LONG, "long message");
}

/* More than any queue has room for, before anybody receives; then received from the last. */
static void many(void)
{
    enum { MANY = 3000 };
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    uint64_t *out = malloc(MANY * sizeof *out), *in = calloc(MANY, sizeof *in);
    MPI_Request *requests = malloc(2 * MANY * sizeof *requests);
    for (int i = 0; i < MANY; i++) {
        out[i] = (uint64_t)i << 32 | (uint64_t)rank;
        MPI_Isend(&out[i], 8, MPI_BYTE, next, i % 7, MPI_COMM_WORLD, &requests[i]);
    }
    for (int tag = 6; tag >= 0; tag--)
        for (int i = tag; i < MANY; i += 7)
            MPI_Irecv(&in[i], 8, MPI_BYTE, before, tag, MPI_COMM_WORLD, &requests[MANY + i]);
    MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++)
        if (in[i] != ((uint64_t)i << 32 | (uint64_t)before))
            fail("many", i);
    free(out), free(in), free(requests);
}

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (count > 1)
        rounds = atoi(arguments[1]);
    unsigned char *out = malloc(2 * LONG), *in = malloc(2 * LONG);
    for (int i = 0; i < rounds; i++) {
        ring(out, in);
        all_to_all(out, in, 100);
        all_to_all(out, in, 40000);
        any_source(in);
        MPI_Barrier(MPI_COMM_WORLD);
        probes(in);
        cancels(in);
        synchronous(out, in);
        many();
        long_ones(out, in);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        puts("all is well");
    free(out), free(in);
    MPI_Finalize();
    return 0;
}
