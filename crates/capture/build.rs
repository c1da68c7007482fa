//! Compiles the kernel half and makes Rust of its ABI; compiles the library that programs are started with.
//!
//! The compiler is `$STACKHOUND_CLANG`, else the clang inside PyPI's `ziglang` of `$PYO3_PYTHON`, else `clang` on PATH.
//! It is needed at build time only: the objects are embedded.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "build/abi.rs"]
mod abi;
#[path = "build/library.rs"]
mod library;

/// Each becomes an object of its own: those that record (twice), that look at threads, and that ask the kernel things.
const OBJECTS: [&str; 7] = [
    "programs",
    "before_5_13",
    "dump",
    "absent",
    "fault_times",
    "names",
    "orc",
];

const ARCHITECTURES: [&str; 2] = ["-D__TARGET_ARCH_x86", "-D__TARGET_ARCH_arm64"];

const FLAGS: [&str; 9] = [
    "-mcpu=v3",
    "-g",
    "-O2",
    "-nostdinc",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-Wall",
    "-Wextra",
    "-Werror",
];

fn main() {
    let bpf = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../bpf");
    let out = PathBuf::from(env::var("OUT_DIR").unwrap());
    println!("cargo:rerun-if-changed={}", bpf.display());
    println!("cargo:rerun-if-env-changed=STACKHOUND_CLANG");
    println!("cargo:rerun-if-env-changed=PYO3_PYTHON");

    let header = std::fs::read_to_string(bpf.join("abi.h")).expect("bpf/abi.h");
    std::fs::write(out.join("abi.rs"), abi::generate(&header)).expect("OUT_DIR is writable");

    let compiler = Compiler::find();
    for name in OBJECTS {
        let source = bpf.join(format!("{name}.bpf.c"));
        compiler.compile(&source, wanted_architecture(), &out.join(format!("{name}.bpf.o")));
        for architecture in ARCHITECTURES {
            compiler.compile(&source, architecture, &out.join("unused.o")); // so that none breaks unseen
        }
    }
    library::compile(&bpf.join("../preload/heap.c"), &out.join("heap.so"));
}

/// A clang for BPF: its command line and the target it calls BPF.
struct Compiler {
    command: Vec<String>,
    target: &'static str,
}

impl Compiler {
    fn find() -> Self {
        if let Ok(clang) = env::var("STACKHOUND_CLANG") {
            return Self {
                command: vec![clang],
                target: "bpfel",
            };
        }
        let python = env::var("PYO3_PYTHON").unwrap_or_else(|_| "python3".into());
        if runs(&[python.clone(), "-m".into(), "ziglang".into(), "version".into()]) {
            return Self {
                command: vec![python, "-m".into(), "ziglang".into(), "cc".into()],
                target: "bpfel-freestanding",
            };
        }
        if runs(&["clang".into(), "--version".into()]) {
            return Self {
                command: vec!["clang".into()],
                target: "bpfel",
            };
        }
        panic!("no compiler for BPF: `pip install ziglang`, or install clang, or name one in STACKHOUND_CLANG");
    }

    fn compile(&self, source: &Path, architecture: &str, object: &Path) {
        let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys tells where libbpf's headers are");
        let status = Command::new(&self.command[0])
            .args(&self.command[1..])
            .args(["-target", self.target, architecture])
            .args(FLAGS)
            .arg("-Wno-unused-parameter") // BPF_PROG() names a context that few programs use
            .args(["-I", &libbpf, "-c"])
            .arg(source)
            .arg("-o")
            .arg(object)
            .status()
            .expect("the compiler runs");
        assert!(status.success(), "{} does not compile", source.display());
    }
}

fn runs(command: &[String]) -> bool {
    Command::new(&command[0])
        .args(&command[1..])
        .output()
        .is_ok_and(|output| output.status.success())
}

fn wanted_architecture() -> &'static str {
    match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => ARCHITECTURES[0],
        Ok("aarch64") => ARCHITECTURES[1],
        other => panic!("x86-64 and arm64 only, not {other:?}"),
    }
}
