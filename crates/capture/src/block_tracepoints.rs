//! What a kernel tells of requests to block devices.

use libbpf_rs::btf::types::{FuncProto, Ptr, Typedef};
use libbpf_rs::btf::{Btf, ReferencesType};

use crate::kernel_types::kernel_has_type;

/// Its tracepoints; they came and changed over time.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockTracepoints {
    /// Requests at all.
    pub has_requests: bool,
    /// Where a thread submits one: since Linux 6.5.
    pub has_start: bool,
    /// Where the kernel is done with one: since Linux 6.5.
    pub has_done: bool,
    /// Where another one takes it over: since Linux 5.11.
    pub has_merge: bool,
    /// Whether queues come before requests among the arguments: until Linux 5.10.
    pub queue_comes_first: bool,
}

impl BlockTracepoints {
    /// Of this kernel.
    pub fn find() -> Self {
        let has_start = kernel_has_type(b"btf_trace_block_io_start");
        Self {
            has_requests: kernel_has_type(b"btf_trace_block_rq_issue"),
            has_start,
            has_done: kernel_has_type(b"btf_trace_block_io_done"),
            has_merge: kernel_has_type(b"btf_trace_block_rq_merge"),
            queue_comes_first: !has_start && arguments("btf_trace_block_rq_issue") == Some(2),
        }
    }

    /// What tells of a request first.
    pub fn first(&self) -> &'static str {
        if self.has_start {
            "block_io_start"
        } else {
            "block_rq_insert"
        }
    }
}

/// How many arguments a tracepoint has; its type has one more before them.
fn arguments(tracepoint: &str) -> Option<usize> {
    let kernel = Btf::from_vmlinux().ok()?;
    let pointer = kernel.type_by_name::<Typedef<'_>>(tracepoint)?.referenced_type();
    let prototype = Ptr::try_from(pointer).ok()?.referenced_type();
    Some(FuncProto::try_from(prototype).ok()?.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::arguments;

    /// A tracepoint that no kernel has changed: registers, and the number of the system call.
    #[test]
    fn the_arguments_of_a_tracepoint_are_told_by_its_type() {
        assert_eq!(arguments("btf_trace_sys_enter"), Some(2));
        assert_eq!(arguments("btf_trace_there_is_none"), None);
    }
}
