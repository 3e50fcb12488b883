/* Shallow water on a square of cells, in strips of rows, one for each rank; the second argument is
   the side. Each step takes the halo of its neighbours, and the time step of all ranks. The scheme
   is that of Lax and Friedrichs, on a torus; a drop falls now and then, and waves never rest. */
#include <math.h>

enum { FIELDS = 3, DROP_EVERY = 200 };
static const double gravity = 9.81;

static int side, rows;
static double *now, *next;

/* A field of a cell; rows 0 and rows + 1 are the neighbours'. */
#define AT(of, field, row, column) of[((field) * (rows + 2) + (row)) * side + (column)]

static void drop(int row, int column)
{
    for (int y = 1; y <= rows; y++)
        for (int x = 0; x < side; x++) {
            double dy = rank * rows + y - row, dx = x - column;
            AT(now, 0, y, x) += 0.1 * exp(-(dx * dx + dy * dy) / side);
        }
}

static void halo(void)
{
    int up = (rank + ranks - 1) % ranks, down = (rank + 1) % ranks;
    for (int f = 0; f < FIELDS; f++) {
        MPI_Sendrecv(&AT(now, f, 1, 0), side, MPI_DOUBLE, up, f, &AT(now, f, rows + 1, 0), side,
                     MPI_DOUBLE, down, f, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&AT(now, f, rows, 0), side, MPI_DOUBLE, down, f, &AT(now, f, 0, 0), side,
                     MPI_DOUBLE, up, f, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* The fastest wave of all ranks. */
static double fastest(void)
{
    double mine = 0, all;
    for (int y = 1; y <= rows; y++)
        for (int x = 0; x < side; x++) {
            double h = AT(now, 0, y, x), u = AT(now, 1, y, x) / h, v = AT(now, 2, y, x) / h;
            mine = fmax(mine, fmax(fabs(u), fabs(v)) + sqrt(gravity * h));
        }
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

static void flux(int row, int column, double along_x[FIELDS], double along_y[FIELDS])
{
    double h = AT(now, 0, row, column), p = AT(now, 1, row, column), q = AT(now, 2, row, column);
    double pressure = 0.5 * gravity * h * h, u = p / h, v = q / h;
    along_x[0] = p, along_x[1] = p * u + pressure, along_x[2] = q * u;
    along_y[0] = q, along_y[1] = p * v, along_y[2] = q * v + pressure;
}

static void step(double part)
{
    double left[FIELDS], right[FIELDS], above[FIELDS], below[FIELDS], unused[FIELDS];
    for (int y = 1; y <= rows; y++)
        for (int x = 0; x < side; x++) {
            int west = (x + side - 1) % side, east = (x + 1) % side;
            flux(y, west, left, unused);
            flux(y, east, right, unused);
            flux(y - 1, x, unused, above);
            flux(y + 1, x, unused, below);
            for (int f = 0; f < FIELDS; f++) {
                double mean = (AT(now, f, y, west) + AT(now, f, y, east) + AT(now, f, y - 1, x) +
                               AT(now, f, y + 1, x)) / 4;
                AT(next, f, y, x) = mean - part / 2 * (right[f] - left[f] + below[f] - above[f]);
            }
        }
}

int main(int argc, char **argv)
{
    volatile int64_t *page = begin(&argc, &argv);
    side = atoi(argv[2]);
    rows = side / ranks;
    size_t size = (size_t)FIELDS * (rows + 2) * side;
    now = calloc(size, sizeof *now);
    next = calloc(size, sizeof *next);
    for (int y = 0; y <= rows + 1; y++)
        for (int x = 0; x < side; x++)
            AT(now, 0, y, x) = 1;
    for (int64_t steps = 0;; steps++) {
        if (steps % DROP_EVERY == 0)
            drop((steps / DROP_EVERY * 37) % side, (steps / DROP_EVERY * 53) % side);
        halo();
        double speed = fastest();
        if (!isfinite(speed))
            MPI_Abort(MPI_COMM_WORLD, 1);
        step(0.25 / speed);
        double *was = now;
        now = next, next = was;
        if (rank == 0)
            page[0] = steps + 1;
    }
}
