//! Where programs are attached, by the links that the kernel knows of.

use std::collections::HashMap;
use std::ffi::{CStr, OsString};

use libbpf_rs::ProgramAttachType;
use libbpf_rs::btf::types::Func;
use libbpf_rs::btf::{Btf, TypeId};
use libbpf_rs::query::{LinkInfo, LinkInfoIter, LinkTypeInfo, PerfEventType};
use libbpf_sys::{bpf_prog_query_opts, bpf_xdp_query_opts};

/// `net/ethernet/loopback`-like names are at most so long.
const INTERFACE_BYTES: usize = libc::IF_NAMESIZE;

/// A place where a program is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Of the link; as the kernel numbers it.
    pub link_id: u32,
    /// Like `tracepoint sched:sched_switch`, `xdp eth0`.
    pub place: String,
}

/// Of all programs. Those that are attached without a link (old ways of XDP, tc, perf) are not among them.
pub(super) fn by_program() -> HashMap<u32, Vec<Attachment>> {
    let mut kernel = None;
    let mut found: HashMap<u32, Vec<Attachment>> = HashMap::new();
    for link in LinkInfoIter::default() {
        let attachment = Attachment {
            link_id: link.id,
            place: place(&link, &mut kernel),
        };
        found.entry(link.prog_id).or_default().push(attachment);
    }
    found
}

fn place(link: &LinkInfo, kernel: &mut Option<Option<Btf<'static>>>) -> String {
    match &link.info {
        LinkTypeInfo::RawTracepoint(raw) => format!("raw_tracepoint {}", raw.name),
        LinkTypeInfo::Tracing(tracing) => {
            let kernel = kernel.get_or_insert_with(|| Btf::from_vmlinux().ok());
            let name = kernel.as_ref().and_then(|btf| type_name(btf, tracing.target_btf_id));
            let way = kebab(&format!("{:?}", tracing.attach_type));
            format!(
                "{way} {}",
                name.unwrap_or_else(|| format!("#{}", tracing.target_btf_id))
            )
        }
        LinkTypeInfo::Cgroup(cgroup) => {
            let way = kebab(&format!("{:?}", cgroup.attach_type));
            format!("{way} cgroup {}", cgroup.cgroup_id)
        }
        LinkTypeInfo::Iter(iterator) => format!("iterator over {}", iterator.target_name.to_string_lossy()),
        LinkTypeInfo::NetNs(namespace) => {
            let way = kebab(&format!("{:?}", namespace.attach_type));
            format!("{way} network namespace {}", namespace.ino)
        }
        LinkTypeInfo::Xdp(xdp) => {
            let is_here = xdp_programs(xdp.ifindex).contains(&link.prog_id);
            format!("xdp {}", interface(xdp.ifindex, is_here))
        }
        LinkTypeInfo::StructOps(ops) => format!("struct_ops map {}", ops.map_id),
        LinkTypeInfo::Netfilter(filter) => format!("netfilter hook {}", filter.hooknum),
        LinkTypeInfo::KprobeMulti(multi) => format!("{} kprobes", multi.count),
        LinkTypeInfo::UprobeMulti(multi) => {
            let file = multi.path.as_ref().map(|path| path.display().to_string());
            format!("{} uprobes {}", multi.count, file.unwrap_or_default())
        }
        LinkTypeInfo::Tcx(tcx) => {
            let is_here = has_link(tcx.ifindex, &tcx.attach_type, link.id);
            let way = kebab(&format!("{:?}", tcx.attach_type));
            format!("{way} {}", interface(tcx.ifindex, is_here))
        }
        LinkTypeInfo::Netkit(netkit) => {
            let is_here = has_link(netkit.ifindex, &netkit.attach_type, link.id);
            format!("netkit {}", interface(netkit.ifindex, is_here))
        }
        LinkTypeInfo::SockMap(sockets) => format!("sockmap {}", sockets.map_id),
        LinkTypeInfo::PerfEvent(event) => perf_event(&event.event_type),
        LinkTypeInfo::Unknown => "unknown".into(),
    }
}

fn perf_event(event: &PerfEventType) -> String {
    let text = |name: &Option<OsString>| {
        name.as_ref()
            .map_or_else(String::new, |name| name.to_string_lossy().into())
    };
    match event {
        PerfEventType::Tracepoint { name, .. } => format!("tracepoint {}", text(name)),
        PerfEventType::Kprobe {
            func_name, is_retprobe, ..
        } => format!(
            "{} {}",
            if *is_retprobe { "kretprobe" } else { "kprobe" },
            text(func_name)
        ),
        PerfEventType::Uprobe {
            file_name,
            is_retprobe,
            offset,
            ..
        } => {
            let way = if *is_retprobe { "uretprobe" } else { "uprobe" };
            format!("{way} {}+{offset:#x}", text(file_name))
        }
        PerfEventType::Event { config, event_type, .. } => format!("perf event {event_type}:{config}"),
        PerfEventType::Unknown(_) => "perf event".into(),
    }
}

fn type_name(btf: &Btf<'_>, id: u32) -> Option<String> {
    let id = TypeId::from(id);
    let function: Option<Func<'_>> = btf.type_by_id(id);
    let name = match &function {
        Some(function) => function.name(),
        None => btf.type_by_id::<libbpf_rs::btf::types::Typedef<'_>>(id)?.name(),
    };
    let name = name?.to_string_lossy();
    Some(name.strip_prefix("btf_trace_").unwrap_or(&name).to_owned())
}

/// `TraceRawTp` → `trace-raw-tp`.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// The programs at an interface of this network namespace, each way that XDP has.
fn xdp_programs(index: u32) -> [u32; 4] {
    let mut found = bpf_xdp_query_opts {
        sz: size_of::<bpf_xdp_query_opts>() as u64,
        ..Default::default()
    };
    // SAFETY: it is as large as it says.
    let refused = unsafe { libbpf_sys::bpf_xdp_query(index as i32, 0, &raw mut found) };
    match refused {
        0 => [found.prog_id, found.drv_prog_id, found.hw_prog_id, found.skb_prog_id],
        _ => [0; 4],
    }
}

/// Whether a link is at an interface of this network namespace.
fn has_link(index: u32, way: &ProgramAttachType, link: u32) -> bool {
    const MAX_LINKS: usize = 64; // BPF_MPROG_MAX
    let (mut programs, mut links) = ([0; MAX_LINKS], [0; MAX_LINKS]);
    let mut found = bpf_prog_query_opts {
        sz: size_of::<bpf_prog_query_opts>() as u64,
        prog_ids: programs.as_mut_ptr(),
        link_ids: links.as_mut_ptr(),
        ..Default::default()
    };
    found.__bindgen_anon_1.count = MAX_LINKS as u32;
    // SAFETY: both arrays have room for as many as it says.
    let refused = unsafe { libbpf_sys::bpf_prog_query_opts(index as i32, way.clone() as u32, &raw mut found) };
    refused == 0 && links.contains(&link)
}

/// Its name, if it is one of this network namespace: links tell a number, not whose it is.
fn interface(index: u32, is_here: bool) -> String {
    if !is_here {
        return format!("interface {index} of another network namespace");
    }
    let mut name = [0; INTERFACE_BYTES];
    // SAFETY: there is room for the longest name and its zero.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return format!("interface {index}");
    }
    // SAFETY: it ends in a zero.
    unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{interface, kebab};

    #[test]
    fn ways_to_attach_read_like_words() {
        assert_eq!(kebab("TraceFentry"), "trace-fentry");
        assert_eq!(kebab("Xdp"), "xdp");
    }

    #[test]
    fn an_interface_that_is_not_there_is_a_number() {
        assert_eq!(interface(1, true), "lo");
        assert_eq!(interface(123_456, true), "interface 123456");
        assert_eq!(interface(1, false), "interface 1 of another network namespace");
    }
}
