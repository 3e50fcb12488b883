//! Hosts over a real etcd on loopback.

mod hosts;
mod matrix;
mod rights;
mod tls;
mod trouble;
