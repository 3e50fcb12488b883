"""The package against a daemon, on the socket GANG_SOCKET."""

import contextlib
import functools
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import unittest

import gang

try:
    import numpy
except ImportError:
    numpy = None

def group_of(_=None):
    with open("/proc/self/cgroup") as groups:
        return next((line[3:].strip() for line in groups if line.startswith("0::")), "")


HAS_GROUPS = False


def setUpModule():
    """A job is a cgroup where the daemon can make some. Elsewhere it is a tree of processes,
    of which the daemon learns a moment later. Not found out at import: workers import, too."""
    global HAS_GROUPS
    with gang.job(cpus=1):
        HAS_GROUPS = "/job-" in group_of()


def needs_groups(test):
    @functools.wraps(test)
    def run(self):
        if not HAS_GROUPS:
            self.skipTest("the daemon has no cgroups")
        test(self)

    return run


# Seconds, after which a test hangs: as crates/libgang/tests has it.
TEST_TIMEOUT = 180


def until(holds, pause=0.01):
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < TEST_TIMEOUT, f"not within {TEST_TIMEOUT} s"
        time.sleep(pause)


@contextlib.contextmanager
def sleeper():
    """A process that does nothing for the length of a block."""
    child = subprocess.Popen(["sleep", "600"])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def stands_still(tid):
    """A thread of this process has not run between two looks."""

    def times_waited():
        with open(f"/proc/self/task/{tid}/status") as status:
            return next(line for line in status if line.startswith("voluntary_ctxt_switches"))

    before = times_waited()
    time.sleep(0.05)
    return times_waited() == before


def shown(job):
    line = [os.environ["GANG_PROGRAM"], "show", str(job.id), "--json"]
    return json.loads(subprocess.run(line, capture_output=True, timeout=TEST_TIMEOUT).stdout)["details"]


def lower(job):
    job.set_class("batch")


class Block(unittest.TestCase):
    def test_the_process_is_a_gang_in_the_block_and_not_after_it(self):
        before = group_of()
        with gang.job(cpus=1, name="block") as job:
            use = job.use()
            self.assertEqual(use.processes, 1)
            self.assertIsInstance(use.state, gang.State)
            if HAS_GROUPS:
                self.assertIn("/job-", group_of())
        self.assertEqual(group_of(), before)
        until(lambda: not is_there(job))

    def test_it_leaves_the_block_by_an_exception_too(self):
        before = group_of()
        with self.assertRaises(ZeroDivisionError):
            with gang.job(cpus=1):
                1 / 0
        self.assertEqual(group_of(), before)

    def test_blocks_follow_each_other(self):
        ids = set()
        for _ in range(3):
            with gang.job(cpus=1, wait=True) as job:
                ids.add(job.id)
                self.assertEqual(job.use().processes, 1)
        self.assertEqual(len(ids), 3)

    def test_workers_of_multiprocessing_are_in_the_job(self):
        for method in ("fork", "spawn", "forkserver"):
            with self.subTest(method), gang.job(cpus=2, min_cpus=1) as job:
                context = multiprocessing.get_context(method)
                with context.Pool(2) as pool:
                    groups = set(pool.map(group_of, range(8)))
                    until(lambda: job.use().processes >= 3)
                    if HAS_GROUPS and method != "forkserver":
                        self.assertEqual(groups, {group_of()})
                    # A worker knows the job by its id, and is the same user.
                    pool.apply(lower, (job,))

    @needs_groups
    def test_a_fork_in_the_block_leaves_it_by_itself(self):
        with gang.job(cpus=1) as job:
            child = os.fork()
            if child == 0:
                try:
                    job.remove_process()
                    os._exit(0 if "/job-" not in group_of() else 1)
                finally:
                    os._exit(2)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(job.use().processes, 1)

    @unittest.skipUnless("GANG_PROGRAM" in os.environ, "GANG_PROGRAM does not name gang")
    def test_under_gang_run_the_block_has_its_job(self):
        script = (
            "import gang, os\n"
            "for _ in range(2):\n"
            "    with gang.job(cpus=1) as job: print(job.id == int(os.environ['GANG_JOB']))\n"
        )
        line = [os.environ["GANG_PROGRAM"], "run", "-n", "1", "--", sys.executable, "-c", script]
        output = subprocess.run(line, capture_output=True, text=True, timeout=TEST_TIMEOUT)
        self.assertEqual(output.stdout, "True\nTrue\n", output.stderr)

    @needs_groups
    def test_blocks_do_not_nest(self):
        with gang.job(cpus=1) as job:
            with self.assertRaisesRegex(gang.NotPermitted, "one job at a time"):
                with gang.job(cpus=1):
                    pass
            self.assertEqual(job.use().processes, 1)

    @unittest.skipUnless(numpy, "numpy is not here")
    def test_threads_of_numpy_are_in_the_job(self):
        meeting, results = threading.Barrier(4), []

        def multiply():
            matrix = numpy.ones((300, 300))
            for _ in range(20):
                matrix = matrix @ matrix / 300
            results.append(matrix[0, 0])
            meeting.wait(TEST_TIMEOUT)
            meeting.wait(TEST_TIMEOUT)

        with gang.job(cpus=2, min_cpus=1) as job:
            threads = [threading.Thread(target=multiply) for _ in range(3)]
            for thread in threads:
                thread.start()
            meeting.wait(TEST_TIMEOUT)
            until(lambda: job.use().threads >= 4)
            meeting.wait(TEST_TIMEOUT)
            for thread in threads:
                thread.join()
        for result in results:
            self.assertAlmostEqual(result, 1)
        self.assertEqual(len(results), 3)


class Calls(unittest.TestCase):
    def test_a_job_changes_while_it_runs(self):
        with gang.job(cpus=2, min_cpus=1, job_class=gang.Class.INTERACTIVE) as job:
            # Not lower: a program in standby may have no CPU for long.
            job.set_class("batch")
            job.set_class(gang.Class.BATCH)
            job.resize(cpus=1)
            job.resize(weight=200, mem_bytes=1 << 20)
            job.resize(mem_bytes=0)
            job.set_signals(True)
            job.set_signals(False)
            for done in range(1001):
                job.progress(done, 1000)
            for done, total in ((2, 1), (float("nan"), 1), (0, 0)):
                with self.assertRaises(gang.Invalid):
                    job.progress(done, total)
            if "GANG_PROGRAM" in os.environ:
                # The end is reported at once, and once it is there it stays.
                until(lambda: (shown(job).get("progress") or {}).get("done") == 1000)
            other = gang.open(job.id)
            self.assertEqual(other.id, job.id)
            self.assertEqual(pickle.loads(pickle.dumps(job)).id, job.id)
            self.assertEqual(repr(job), f"<gang.Job {job.id}>")

    def test_a_thread_is_a_gang_while_its_process_is_not(self):
        job = gang.register(cpus=1, name="single")
        with self.assertRaises(gang.NoSuchProcess):
            job.remove_thread()
        try:
            job.add_thread()
        except gang.Error as error:
            # Other backends than rt act on whole processes, and say so.
            self.assertEqual(error.code, gang.Result.FAILED)
            self.assertIn("process", str(error))
            self.skipTest(str(error))
        job.add_thread(threading.get_native_id())
        used = job.use()
        self.assertEqual(used.processes, 0)
        with self.assertRaises(gang.NotPermitted):
            job.suspend()
        with self.assertRaises(gang.NotPermitted):
            job.add_process()
        job.remove_thread()
        with self.assertRaises(gang.NoSuchJob):
            job.use()

    def test_a_child_is_added_suspended_resumed_and_removed(self):
        job = gang.register(cpus=1, name="sleeper")
        with sleeper() as child:
            job.add_process(child.pid)
            job.set_class(gang.Class.STANDBY)
            job.suspend()
            self.assertEqual(job.use().state, gang.State.SUSPENDED)
            job.resume()
            self.assertNotEqual(job.use().state, gang.State.SUSPENDED)
            job.remove_process(child.pid)
            until(lambda: not is_there(job))

    def test_what_runs_is_adopted(self):
        with sleeper() as child:
            job = gang.adopt(child.pid, cpus=1, name="adopted")
            self.assertEqual(job.use().processes, 1)

    def test_the_slot_page_shows_slots(self):
        with gang.job(cpus=1) as job:
            page = job.page()
            seen = set()

            def both():
                seen.add(page.running)
                return seen == {True, False}

            until(both, pause=0)
            self.assertTrue(page.is_valid)
            self.assertGreater(page.slice_ns, 0)
            self.assertIsInstance(page.until_ns, int)
            self.assertLessEqual(page.on_cpus, os.cpu_count())
        del job
        # It stays mapped for as long as somebody looks at it.
        until(lambda: not page.running)

    def test_the_load_of_the_machine(self):
        load = gang.load()
        self.assertEqual(load.cpus >= 1, True)
        self.assertGreater(load.mem_total_bytes, load.mem_free_bytes)


class Refusals(unittest.TestCase):
    def test_what_is_out_of_bounds_is_invalid(self):
        for keywords in (
            {"cpus": -1},
            {"cpus": 1 << 32},
            {"cpus": 1, "min_cpus": 2},
            {"cpus": 1, "weight": 0},
            {"cpus": 1, "weight": 1 << 40},
            {"cpus": 1, "mem_bytes": 1 << 63},
            {"cpus": 1, "name": "a\0b"},
            {"cpus": 1, "name": "n" * 65},
            {"cpus": 1, "name": ""},
            {"cpus": 1, "job_class": "royal"},
            {"cpus": 1, "job_class": 5},
        ):
            with self.subTest(keywords), self.assertRaises(gang.Invalid) as caught:
                gang.register(**keywords)
            self.assertEqual(caught.exception.code, gang.Result.INVALID)
            self.assertTrue(str(caught.exception))
        for wrong in ("4", 1.5, [], None):
            with self.subTest(wrong), self.assertRaises(TypeError):
                gang.register(cpus=wrong) if wrong is not None else gang.open(wrong)

    def test_each_failure_has_its_kind_and_code(self):
        with self.assertRaises(gang.NoSuchJob) as caught:
            gang.open(1 << 40)
        self.assertEqual(caught.exception.code, gang.Result.NO_SUCH_JOB)
        with self.assertRaises(gang.NoSuchJob):
            gang.current()
        with gang.job(cpus=1) as job:
            with self.assertRaises(gang.NoSuchProcess):
                job.add_process(99999999)
            with self.assertRaises(gang.Invalid):
                job.add_process(1 << 32)
            with self.assertRaises(gang.NotEnough) as caught:
                job.resize(mem_bytes=1 << 60)
            self.assertEqual(caught.exception.code, gang.Result.NOT_ENOUGH)
            with self.assertRaises(gang.Invalid):
                job.resize(cpus=-4)

    def test_without_a_daemon_a_program_goes_on(self):
        script = (
            "import gang\n"
            "try:\n"
            "    with gang.job(): pass\n"
            "except gang.NoDaemon as error:\n"
            "    print(error.code.name, error)\n"
        )
        output = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "GANG_SOCKET": "/nowhere/gangd.sock"},
            capture_output=True,
            text=True,
            timeout=TEST_TIMEOUT,
        )
        self.assertIn("NO_DAEMON", output.stdout, output.stderr)
        self.assertIn("/nowhere/gangd.sock", output.stdout)

    def test_waiting_for_memory_ends_by_ctrl_c(self):
        free = gang.load().mem_free_bytes
        holder = gang.register(cpus=1, mem_bytes=int(free * 0.9))

        def waits():
            """A thread waits for the call, and the caller for the thread."""
            threads = [thread for thread in threading.enumerate() if thread.name == "gang-wait"]
            return threads and threads[0].native_id and stands_still(threads[0].native_id)

        def interrupt():
            until(waits)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with self.assertRaises(KeyboardInterrupt):
            gang.register(cpus=1, mem_bytes=int(free * 0.9), wait=True)
        holder.add_process()
        holder.remove_process()


def is_there(job):
    try:
        gang.open(job.id)
        return True
    except gang.NoSuchJob:
        return False


if __name__ == "__main__":
    unittest.main()
