//! Bounds that both sides of the socket keep.

use gang_schedule::{JobId, Spec};

/// Longest request, in bytes without the zero byte that ends it.
pub const MESSAGE_MAX: usize = 64 * 1024;

/// Longest reply, in bytes without the zero byte that ends it.
///
/// A reply lists up to all jobs of a daemon, a request speaks of one; so the daemon, which has
/// many clients, buffers little for each, and a client, which has one daemon, may buffer more.
pub const REPLY_MAX: usize = 16 * 1024 * 1024;

/// Longest name of a job, in bytes of UTF-8.
pub const NAME_MAX: usize = 64;

/// Most CPUs that a job can ask for: the largest number Linux can be built for (`NR_CPUS`).
/// How many a machine has is for its daemon to say.
pub const CPUS_MAX: i64 = 8192;

/// Most processes that a job waits for on a host.
pub const RANKS_MAX: i64 = 65_536;

/// The first number of jobs that span hosts.
pub const FIRST_SPANNING: i64 = JobId::FIRST_SPANNING.0 as i64;

/// Least weight of a job.
pub const WEIGHT_MIN: i64 = 1;

/// Greatest weight of a job, the policy's.
pub const WEIGHT_MAX: i64 = Spec::MAX_WEIGHT as i64;

/// Weight of a job for which none was asked, the policy's.
pub const WEIGHT_DEFAULT: i64 = Spec::DEFAULT_WEIGHT as i64;

/// A job with more threads than this gets no slots until it has fewer.
pub const THREADS_MAX: i64 = Spec::MAX_THREADS as i64;

/// The limits of connections, as an error of the daemon names them: of all, and of one user.
pub const CLIENTS: &str = "clients";
pub const CLIENTS_OF_USER: &str = "clients of a user";
