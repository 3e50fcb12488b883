/* Two ranks send 8 bytes to and fro, and spin for them. */
int main(int argc, char **argv)
{
    volatile int64_t *page = begin(&argc, &argv);
    char message[8] = {0};
    int other = 1 - rank;
    for (;;) {
        if (rank == 0)
            MPI_Send(message, 8, MPI_CHAR, other, 0, MPI_COMM_WORLD);
        MPI_Recv(message, 8, MPI_CHAR, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(message, 8, MPI_CHAR, other, 0, MPI_COMM_WORLD);
        else
            page[0]++;
    }
}
