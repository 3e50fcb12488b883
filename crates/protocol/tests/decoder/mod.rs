//! The way of untrusted bytes to a call of the interface, with the properties that must hold on
//! it. Shared by the test of the corpus and by the fuzz target.

use std::io::{BufRead, BufReader};

use gang_protocol::frame::{parse_request, read_message};
use gang_protocol::limits::MESSAGE_MAX;
use gang_protocol::name::{check_name, escaped, nearest_name};
use gang_protocol::{auto1, v1};
use varlink::Interface;

/// The outcome of decoding some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    pub messages: usize,
    pub requests: usize,
    /// Requests that reached the code of a method, so had all its parameters.
    pub calls: usize,
}

/// Decodes all of `data` as a daemon would that reads it in small pieces.
pub fn decode_all(data: &[u8]) -> Decoded {
    let interface = v1::new(Box::new(Deaf));
    let auto = auto1::new(Box::new(Deaf));
    let mut decoded = Decoded::default();
    let mut stream = BufReader::with_capacity(1 + data.len() % 61, data);
    while let Ok(Some(message)) = read_message(&mut stream, MESSAGE_MAX) {
        decoded.messages += 1;
        assert!(message.len() <= MESSAGE_MAX);
        assert!(!message.contains(&0));
        let Ok(request) = parse_request(&message) else { continue };
        decoded.requests += 1;
        check_names(&request);

        let mut reply = Vec::new();
        let mut call = varlink::Call::new(&mut reply, &request);
        // An error here is a parameter that does not fit, which the call has answered already.
        let _ = match request.method.starts_with("org.gangd.auto1.") {
            true => auto.call(&mut call),
            false => interface.call(&mut call),
        };
        if request.oneway != Some(true) {
            let body = reply.strip_suffix(b"\0").expect("one reply, that ends with a zero byte");
            let reply: varlink::Reply = serde_json::from_slice(body).expect("a reply in JSON");
            let error = reply.error.as_deref().unwrap_or_default();
            decoded.calls += usize::from(error == "org.varlink.service.MethodNotImplemented");
        }
    }
    assert!(decoded.calls <= decoded.requests && decoded.requests <= decoded.messages);
    decoded
}

fn check_names(request: &varlink::Request<'_>) {
    let parameters = request.parameters.as_ref();
    if let Some(name) = parameters.and_then(|p| p.get("name")).and_then(|name| name.as_str()) {
        check_name(&nearest_name(name, "job")).expect("the nearest name is acceptable");
        assert!(!escaped(name).contains(char::is_control));
        if check_name(name).is_ok() {
            assert_eq!(escaped(name), name);
        }
    }
}

/// Takes every call and does nothing: what is tried is the way to it.
struct Deaf;

impl auto1::VarlinkInterface for Deaf {
    fn decide(
        &self,
        call: &mut dyn auto1::Call_Decide,
        _: i64,
        _: auto1::Policy,
        _: bool,
        _: Option<auto1::Gain>,
        _: String,
    ) -> varlink::Result<()> {
        call.reply_method_not_implemented("decide".to_owned())
    }
}

macro_rules! not_implemented {
    ($($method:ident, $call:ident $(, $type:ty)*;)*) => {
        impl v1::VarlinkInterface for Deaf {
            $(fn $method(&self, call: &mut dyn v1::$call $(, _: $type)*) -> varlink::Result<()> {
                call.reply_method_not_implemented(stringify!($method).to_owned())
            })*
            fn call_upgraded(
                &self,
                _: &mut varlink::Call,
                _: &mut dyn BufRead,
            ) -> varlink::Result<Vec<u8>> {
                unreachable!("parse_request refuses upgrades")
            }
        }
    };
}

not_implemented! {
    register, Call_Register, String, i64, i64, v1::Class, v1::Policy, i64, Option<i64>, Option<i64>, Option<bool>, Option<bool>;
    register_spanning, Call_RegisterSpanning, String, Vec<v1::HostCpus>, v1::Class, i64, v1::OnHostLost,
        Option<i64>, Option<String>;
    get_host, Call_GetHost;
    get_cluster, Call_GetCluster;
    remove_process, Call_RemoveProcess, i64, i64;
    set_job, Call_SetJob, i64, Option<v1::Class>, Option<v1::Policy>, Option<i64>, Option<i64>, Option<i64>,
        Option<i64>, Option<i64>;
    add_process, Call_AddProcess, i64, i64;
    add_caller, Call_AddCaller, i64;
    get_caller, Call_GetCaller;
    add_thread, Call_AddThread, i64, i64;
    remove_thread, Call_RemoveThread, i64, i64;
    adopt, Call_Adopt, String, i64, i64, v1::Class, v1::Policy, i64, Option<i64>, Option<String>,
        Option<i64>, Option<i64>, Option<bool>;
    list_jobs, Call_ListJobs;
    show_job, Call_ShowJob, i64;
    get_status, Call_GetStatus;
    get_frame, Call_GetFrame, Option<i64>;
    get_switches, Call_GetSwitches, i64;
    get_history, Call_GetHistory, Option<i64>, Option<i64>, Option<i64>;
    get_slot_page, Call_GetSlotPage, i64;
    get_net_key, Call_GetNetKey, i64;
    add_port, Call_AddPort, i64, i64;
    get_snapshot, Call_GetSnapshot, i64, bool;
    set_signals, Call_SetSignals, i64, bool;
    suspend, Call_Suspend, i64;
    resume, Call_Resume, i64;
    kill, Call_Kill, i64, i64;
    check, Call_Check;
    set_progress, Call_SetProgress, i64, f64, f64;
    set_slurm_job, Call_SetSlurmJob, i64, String;
    shutdown, Call_Shutdown;
}
