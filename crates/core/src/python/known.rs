//! The layouts of CPython 3.9 to 3.12, which do not tell theirs, and what 3.13 does not tell. A minor version keeps its
//! layout.
//!
//! 64-bit release builds. `tests/integration/test_python_reading.py` holds each number against running interpreters,
//! `test_python_tasks.py` beside it those of asyncio.

use super::layout::{
    Attributes, Awaits, Bytes, Called, Code, Counted, Entry, Gil, GilPlace, Layout, Links, StackTop, States, TakenOver,
    Text, Walk,
};
use super::version::Version;

/// `struct _gil_runtime_state`.
const GIL_HOLDER: u16 = 8;
const GIL_LOCKED: u16 = 16;

const BYTES: Bytes = Bytes {
    length: 16,
    contents: 32,
};

/// The layout of 3.`minor`, 9 to 12.
pub(super) fn layout(version: Version, minor: u8) -> Layout {
    Layout {
        version,
        is_free_threaded: false,
        walk: match minor {
            ..=10 => walk_3_9(minor),
            11 => WALK_3_11,
            _ => WALK_3_12,
        },
        states: states(minor),
        gil: Gil {
            place: gil_place(minor),
            locked: GIL_LOCKED,
            holder: GIL_HOLDER,
            enabled: None,
        },
        code: code(minor),
        text: text(minor),
        bytes: BYTES,
        awaits: (minor == 12).then_some(awaits(CALLED_3_12)),
    }
}

/// `PyInterpreterState.imports.modules`; `TaskObj` of `Modules/_asynciomodule.c`.
pub(super) const CALLED_3_12: Called = Called {
    modules: 944,
    awaited: 128,
    coroutine: 136,
    attributes: Attributes::Pointed,
};

/// 3.13 tells where modules are.
pub(super) const fn called_3_13(modules: u32) -> Called {
    Called {
        modules,
        awaited: 112,
        coroutine: 120,
        attributes: Attributes::Inline,
    }
}

/// `PyObject`, `PyTypeObject`, `PyCoroObject`, `_PyInterpreterFrame`, `PyLongObject` of 3.12 and 3.13.
pub(super) const fn awaits(called: Called) -> Awaits {
    Awaits {
        object_bytes: 16,
        kind: 8,
        kind_flags: 168,
        coroutine_frame: 72,
        coroutine_state: 67,
        stack_top: StackTop::Count { count: 64, values: 72 },
        int_tag: 16,
        int_digits: 24,
        links: Links::Called(called),
    }
}

/// `_PyRuntimeState.gilstate.tstate_current`, from `ceval.gil`; `PyThreadState.cframe`. 3.9 keeps nothing of
/// its stack.
const fn taken_over(cframe: u16) -> Option<TakenOver> {
    Some(TakenOver {
        running: 216,
        loop_mark: cframe,
    })
}

/// `PyThreadState`, `PyFrameObject`.
const fn walk_3_9(minor: u8) -> Walk {
    let is_3_9 = minor == 9;
    Walk {
        thread_id: 176,
        frame: 24,
        cframe: None,
        code: 32,
        code_tag: 0,
        previous: 24,
        instruction: if is_3_9 { 104 } else { 96 },
        counted: if is_3_9 { Counted::Bytes } else { Counted::Units },
        entry: Entry::Each,
        copies: None,
        taken_over: if is_3_9 { None } else { taken_over(48) },
    }
}

/// `PyThreadState`, `_PyCFrame`, `_PyInterpreterFrame`.
const WALK_3_11: Walk = Walk {
    thread_id: 152,
    frame: 56,
    cframe: Some(8),
    code: 32,
    code_tag: 0,
    previous: 48,
    instruction: 56,
    counted: Counted::Pointer { bytecode: 184 },
    entry: Entry::Flag(68),
    copies: None,
    taken_over: taken_over(56),
};

const WALK_3_12: Walk = Walk {
    thread_id: 136,
    frame: 56,
    cframe: Some(0),
    code: 0,
    code_tag: 0,
    previous: 8,
    instruction: 56,
    counted: Counted::Pointer { bytecode: 192 },
    entry: Entry::Before { owner: 70, from: 3 },
    copies: None,
    taken_over: None,
};

/// `_PyRuntimeState`, `PyInterpreterState`, `PyThreadState`.
const fn states(minor: u8) -> States {
    let (interpreters, threads, native_id, interpreter) = match minor {
        ..=10 => (32, 8, None, None),
        11 => (40, 16, Some(160), None),
        _ => (40, 72, Some(144), Some(16)),
    };
    States {
        interpreters,
        next_interpreter: 0,
        threads,
        next_thread: 8,
        native_id,
        interpreter,
    }
}

/// `_PyRuntimeState.ceval.gil`, or `PyInterpreterState.ceval.gil`.
const fn gil_place(minor: u8) -> GilPlace {
    match minor {
        ..=10 => GilPlace::Runtime(352),
        11 => GilPlace::Runtime(360),
        _ => GilPlace::Interpreter(384),
    }
}

/// `PyCodeObject`.
const fn code(minor: u8) -> Code {
    match minor {
        ..=10 => Code {
            kind: 8,
            name: 112,
            qualified_name: None,
            file: 104,
            lines: 120,
            first_line: 40,
        },
        _ => Code {
            kind: 8,
            name: 120,
            qualified_name: Some(128),
            file: 112,
            lines: 136,
            first_line: if minor == 11 { 72 } else { 68 },
        },
    }
}

/// `PyASCIIObject`, `PyCompactUnicodeObject`: 3.12 took out `wstr`.
const fn text(minor: u8) -> Text {
    let (ascii, other) = if minor < 12 { (48, 72) } else { (40, 56) };
    Text {
        length: 16,
        state: 32,
        kind_bit: 2,
        ascii,
        other,
    }
}
