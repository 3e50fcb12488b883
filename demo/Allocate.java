import java.time.Instant;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Threads that allocate all the time, one for each CPU: most objects die young, some live on for a
 * while. All threads meet where garbage is collected.
 *
 * <p>{@code java Allocate.java OBJECTS TIMES}: each thread makes TIMES lists of so many objects.
 * One line of JSON is printed.
 */
public class Allocate {
  /** Lists of a thread that are alive. */
  private static final int KEPT = 8;

  private record Node(Node next, long value) {}

  private static long sum(Node list) {
    long sum = 0;
    for (Node node = list; node != null; node = node.next()) {
      sum += node.value();
    }
    return sum;
  }

  public static void main(String[] arguments) throws InterruptedException {
    int objects = Integer.parseInt(arguments[0]);
    int times = Integer.parseInt(arguments[1]);
    AtomicLong sum = new AtomicLong();
    Runnable allocate =
        () -> {
          Node[] kept = new Node[KEPT];
          for (int time = 0; time < times; time++) {
            Node list = null;
            for (int value = 0; value < objects; value++) {
              list = new Node(list, value);
            }
            kept[time % KEPT] = list;
            sum.addAndGet(sum(kept[time / 2 % KEPT]));
          }
        };
    Thread[] threads = new Thread[Runtime.getRuntime().availableProcessors()];
    for (int of = 0; of < threads.length; of++) {
      threads[of] = new Thread(allocate);
      threads[of].start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    long expected = (long) objects * (objects - 1) / 2 * times * threads.length;
    Instant now = Instant.now();
    long nowNs = now.getEpochSecond() * 1_000_000_000L + now.getNano();
    System.out.println("{\"finished_at_ns\": " + nowNs + ", \"sum\": " + sum + "}");
    System.exit(sum.get() == expected ? 0 : 1);
  }
}
