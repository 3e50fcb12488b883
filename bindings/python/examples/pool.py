"""A pool of workers as a gang: while the block lasts, all of them run at the same moment.

    python3 pool.py
"""

import multiprocessing

import gang


def square_sum(n):
    return sum(i * i for i in range(n))


def main():
    try:
        with gang.job(cpus=2, min_cpus=1, name="pool", job_class="interactive") as job:
            page = job.page()
            # The workers are children that are started in the block, so they are in the job.
            with multiprocessing.Pool(2) as pool:
                sums = pool.map(square_sum, [300_000] * 8)
                processes = job.use().processes
            job.set_class(gang.Class.BATCH)  # lower is always permitted
        slots = "slots so far" if page.slots else "no slot yet"
        print(f"{len(sums)} sums by {processes} processes in one job, {slots}")
    except gang.NoDaemon as error:
        print(f"as an ordinary program: {error}")


if __name__ == "__main__":
    main()
