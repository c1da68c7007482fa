//! Who awaits an asyncio task, in CPython 3.12 and 3.13: a task keeps only what it is to call when it is done.
//!
//! ```text
//! task ─calls→ built-in method of the task that awaits it
//!      ─calls→ method of a TaskGroup ─attribute→ the task that has entered the group
//!      ─calls→ function of gather(), wait() or shield() ─closure→ future ─calls→ built-in method of the task …
//! ```

use std::cell::RefCell;

use hashbrown::HashMap;

use super::layout::{Attributes, Awaits, Called};
use super::memory::{Memory, Unreadable, further, read_array, read_pointer, read_u64};
use super::object::{read_vec, read_words};
use crate::address::ProcessAddr;

/// `FutureObj` of `Modules/_asynciomodule.c`, as which tasks begin: the first callback, and a list of the others.
const CALLBACK: u32 = 24;
const MORE_CALLBACKS: u32 = 40;

/// `PyCFunctionObject.m_self`, `PyMethodObject.im_self`.
const SELF: u32 = 24;
/// `PyFunctionObject.func_closure`, `PyCellObject.ob_ref`.
const CLOSURE: u32 = 72;
const CELL: u32 = 16;
/// `PyVarObject.ob_size`, `PyTupleObject.ob_item`, `PyListObject.ob_item`.
const SIZE: u32 = 16;
const ITEMS: u32 = 24;

/// `PyTypeObject`: its name and what it is derived from.
const TYPE_NAME: u32 = 24;
const TYPE_BASE: u32 = 256;
const MAX_BASES: usize = 16;

/// `Py_TPFLAGS_INLINE_VALUES` of 3.13, `Py_TPFLAGS_MANAGED_DICT`.
const HAS_INLINE_VALUES: u64 = 1 << 2;
const HAS_MANAGED_DICT: u64 = 1 << 4;

/// Callbacks, variables in a closure, attributes of a `TaskGroup` to look at.
const MAX_ITEMS: u64 = 30;

/// What an object is, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Task,
    Future,
    BuiltIn,
    Method,
    Function,
    Other,
}

/// By the names of types, the longest of which has 26 characters.
const KINDS: [(&[u8], Kind); 5] = [
    (b"_asyncio.Task\0", Kind::Task),
    (b"_asyncio.Future\0", Kind::Future),
    (b"builtin_function_or_method\0", Kind::BuiltIn),
    (b"method\0", Kind::Method),
    (b"function\0", Kind::Function),
];

/// Reads what the tasks of a process are to call.
pub(super) struct Callbacks<'m> {
    memory: &'m dyn Memory,
    awaits: Awaits,
    called: Called,
    /// Of the types that were met.
    kinds: RefCell<HashMap<ProcessAddr, Kind>>,
}

impl<'m> Callbacks<'m> {
    pub(super) fn new(memory: &'m dyn Memory, awaits: Awaits, called: Called) -> Self {
        Self {
            memory,
            awaits,
            called,
            kinds: RefCell::default(),
        }
    }

    pub(super) fn is_task(&self, object: ProcessAddr) -> Result<bool, Unreadable> {
        Ok(self.kind(object)? == Kind::Task)
    }

    /// The task that awaits one; of several one of them.
    pub(super) fn awaiting(&self, task: ProcessAddr) -> Result<Option<ProcessAddr>, Unreadable> {
        self.first(self.callbacks_of(task)?, |callback| match self.kind(callback)? {
            Kind::BuiltIn => self.woken(callback, task),
            Kind::Method => self.owner(callback),
            Kind::Function => self.behind(callback),
            _ => Ok(None),
        })
    }

    /// The task that a built-in method goes on with, if that awaits this very future: others may be called as well.
    fn woken(&self, callback: ProcessAddr, future: ProcessAddr) -> Result<Option<ProcessAddr>, Unreadable> {
        let task = ProcessAddr(read_u64(self.memory, further(callback, SELF))?);
        if task.0 == 0 || !self.is_task(task)? {
            return Ok(None);
        }
        let awaited = read_u64(self.memory, further(task, self.called.awaited))?;
        Ok((awaited == future.0).then_some(task))
    }

    /// The task among the attributes of the instance that a method is of.
    fn owner(&self, method: ProcessAddr) -> Result<Option<ProcessAddr>, Unreadable> {
        let instance = ProcessAddr(read_u64(self.memory, further(method, SELF))?);
        let attributes = self.attributes_of(instance)?;
        self.first(attributes, |value| Ok(self.is_task(value)?.then_some(value)))
    }

    /// The task that awaits a future in the closure of a function.
    fn behind(&self, function: ProcessAddr) -> Result<Option<ProcessAddr>, Unreadable> {
        let Some(closure) = read_pointer(self.memory, further(function, CLOSURE))? else {
            return Ok(None);
        };
        self.first(
            self.items(closure, further(closure, ITEMS))?,
            |cell| match read_pointer(self.memory, further(cell, CELL))? {
                Some(value) if self.kind(value)? == Kind::Future => self.waiting_for(value),
                _ => Ok(None),
            },
        )
    }

    fn waiting_for(&self, future: ProcessAddr) -> Result<Option<ProcessAddr>, Unreadable> {
        self.first(self.callbacks_of(future)?, |callback| match self.kind(callback)? {
            Kind::BuiltIn => self.woken(callback, future),
            _ => Ok(None),
        })
    }

    fn first(
        &self,
        objects: Vec<ProcessAddr>,
        find: impl Fn(ProcessAddr) -> Result<Option<ProcessAddr>, Unreadable>,
    ) -> Result<Option<ProcessAddr>, Unreadable> {
        objects
            .into_iter()
            .find_map(|object| find(object).transpose())
            .transpose()
    }

    /// All but the first one are in tuples, with their contexts.
    fn callbacks_of(&self, future: ProcessAddr) -> Result<Vec<ProcessAddr>, Unreadable> {
        let first = read_pointer(self.memory, further(future, CALLBACK))?;
        let mut callbacks: Vec<_> = first.into_iter().collect();
        if let Some(list) = read_pointer(self.memory, further(future, MORE_CALLBACKS))? {
            let items = ProcessAddr(read_u64(self.memory, further(list, ITEMS))?);
            for tuple in self.items(list, items)? {
                callbacks.extend(read_pointer(self.memory, further(tuple, ITEMS))?);
            }
        }
        Ok(callbacks)
    }

    /// Of a tuple or a list.
    fn items(&self, object: ProcessAddr, items: ProcessAddr) -> Result<Vec<ProcessAddr>, Unreadable> {
        let count = read_u64(self.memory, further(object, SIZE))?;
        self.pointers(items, count)
    }

    /// Those that are not null, of so many.
    fn pointers(&self, at: ProcessAddr, count: u64) -> Result<Vec<ProcessAddr>, Unreadable> {
        let words = read_words(self.memory, at, count.min(MAX_ITEMS) as usize)?;
        Ok(words.into_iter().filter(|word| *word != 0).map(ProcessAddr).collect())
    }

    /// What was assigned to an instance of a class; nothing when it has them elsewhere, as after `vars()`.
    fn attributes_of(&self, instance: ProcessAddr) -> Result<Vec<ProcessAddr>, Unreadable> {
        let kind = ProcessAddr(read_u64(self.memory, further(instance, self.awaits.kind))?);
        let flags = read_u64(self.memory, further(kind, self.awaits.kind_flags))?;
        match self.called.attributes {
            Attributes::Pointed if flags & HAS_MANAGED_DICT != 0 => self.pointed(instance),
            Attributes::Inline if flags & HAS_INLINE_VALUES != 0 => self.inline(instance),
            _ => Ok(Vec::new()),
        }
    }

    /// Before the values is how many bytes there are before them, and before that how many values.
    fn pointed(&self, instance: ProcessAddr) -> Result<Vec<ProcessAddr>, Unreadable> {
        let values = read_u64(self.memory, ProcessAddr(instance.0.wrapping_sub(24)))?;
        if values & 1 == 0 {
            return Ok(Vec::new());
        }
        let values = ProcessAddr(values.wrapping_add(1));
        let [count] = read_array(self.memory, ProcessAddr(values.0.wrapping_sub(2)))?;
        self.pointers(values, count.into())
    }

    /// For how many there is room, how many there are, whether they are here at first, whether they still are; in bytes.
    fn inline(&self, instance: ProcessAddr) -> Result<Vec<ProcessAddr>, Unreadable> {
        let values = further(instance, self.awaits.object_bytes);
        let [capacity, _, _, is_valid] = read_array(self.memory, values)?;
        let count = if is_valid == 0 { 0 } else { capacity };
        self.pointers(further(values, 8_u32), count.into())
    }

    fn kind(&self, object: ProcessAddr) -> Result<Kind, Unreadable> {
        let first = ProcessAddr(read_u64(self.memory, further(object, self.awaits.kind))?);
        if let Some(kind) = self.kinds.borrow().get(&first) {
            return Ok(*kind);
        }
        let (mut kind, mut next) = (Kind::Other, Some(first));
        for _ in 0..MAX_BASES {
            let Some(at) = next.filter(|_| kind == Kind::Other) else {
                break;
            };
            kind = self.named(at)?;
            next = read_pointer(self.memory, further(at, TYPE_BASE))?;
        }
        self.kinds.borrow_mut().insert(first, kind);
        Ok(kind)
    }

    /// What a type is by its own name.
    fn named(&self, kind: ProcessAddr) -> Result<Kind, Unreadable> {
        let name = ProcessAddr(read_u64(self.memory, further(kind, TYPE_NAME))?);
        let is = |(wanted, _): &&(&[u8], Kind)| {
            let found = read_vec(self.memory, name, wanted.len());
            found.is_ok_and(|found| found == *wanted) // it may end where its memory does
        };
        Ok(KINDS.iter().find(is).map_or(Kind::Other, |(_, kind)| *kind))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::super::known;
    use super::*;
    use crate::random::Random;

    const fn place(page: u64) -> ProcessAddr {
        ProcessAddr(0x10_0000 + 0x1_0000 * page)
    }

    const TASK_TYPE: ProcessAddr = place(0);
    const FUTURE_TYPE: ProcessAddr = place(1);
    const GATHERING_TYPE: ProcessAddr = place(2);
    const BUILT_IN_TYPE: ProcessAddr = place(3);
    const METHOD_TYPE: ProcessAddr = place(4);
    const FUNCTION_TYPE: ProcessAddr = place(5);
    const GROUP_TYPE: ProcessAddr = place(6);
    const TASK: ProcessAddr = place(7);
    const PARENT: ProcessAddr = place(8);
    const BUILT_IN: ProcessAddr = place(9);
    const METHOD: ProcessAddr = place(10);
    const FUNCTION: ProcessAddr = place(11);
    const GROUP: ProcessAddr = ProcessAddr(place(12).0 + 64);
    const VALUES: ProcessAddr = ProcessAddr(place(13).0 + 64);
    const FUTURE: ProcessAddr = place(14);
    const CLOSURE_TUPLE: ProcessAddr = place(15);
    const CELLS: [ProcessAddr; 2] = [place(16), place(17)];
    const LIST: ProcessAddr = place(18);
    const LIST_ITEMS: ProcessAddr = place(19);
    const TUPLE: ProcessAddr = place(20);

    /// A parent that awaits a task, by nothing yet.
    fn fake() -> Fake {
        let mut memory = Fake::new();
        let types: [(_, &[u8], u64, u64); 7] = [
            (TASK_TYPE, b"_asyncio.Task\0", FUTURE_TYPE.0, 0),
            (FUTURE_TYPE, b"_asyncio.Future\0", 0, 0),
            (GATHERING_TYPE, b"_GatheringFuture\0", FUTURE_TYPE.0, 0),
            (BUILT_IN_TYPE, b"builtin_function_or_method\0", 0, 0),
            (METHOD_TYPE, b"method\0", 0, 0),
            (FUNCTION_TYPE, b"function\0", 0, 0),
            (GROUP_TYPE, b"TaskGroup\0", 0, HAS_MANAGED_DICT | HAS_INLINE_VALUES),
        ];
        for (at, name, base, flags) in types {
            memory.write(further(at, TYPE_NAME), at.0 + 0x400);
            memory.write_bytes(further(at, 0x400_u32), name);
            memory.write(further(at, TYPE_BASE), base);
            memory.write(further(at, 168_u32), flags);
        }
        let objects = [
            (TASK, TASK_TYPE),
            (PARENT, TASK_TYPE),
            (BUILT_IN, BUILT_IN_TYPE),
            (METHOD, METHOD_TYPE),
            (FUNCTION, FUNCTION_TYPE),
            (GROUP, GROUP_TYPE),
            (FUTURE, GATHERING_TYPE),
        ];
        for (at, kind) in objects {
            memory.write(further(at, 8_u32), kind.0);
        }
        memory.write(further(BUILT_IN, SELF), PARENT.0);
        memory.write(further(METHOD, SELF), GROUP.0);
        memory
    }

    fn awaiting_in(attributes: Attributes, memory: &Fake) -> Result<Option<ProcessAddr>, Unreadable> {
        let called = Called {
            attributes,
            ..known::CALLED_3_12
        };
        Callbacks::new(memory, known::awaits(called), called).awaiting(TASK)
    }

    fn awaiting(memory: &Fake) -> Option<ProcessAddr> {
        awaiting_in(Attributes::Pointed, memory).unwrap()
    }

    /// `await task`.
    fn with_await(future: ProcessAddr) -> Fake {
        let mut memory = fake();
        memory.write(further(future, CALLBACK), BUILT_IN.0);
        memory.write(further(PARENT, known::CALLED_3_12.awaited), future.0);
        memory
    }

    /// `await gather(task)`.
    fn with_gather() -> Fake {
        let mut memory = with_await(FUTURE);
        memory.write(further(TASK, CALLBACK), FUNCTION.0);
        memory.write(further(FUNCTION, CLOSURE), CLOSURE_TUPLE.0);
        memory.write(further(CLOSURE_TUPLE, SIZE), 2);
        for (at, (cell, value)) in CELLS.into_iter().zip([LIST, FUTURE]).enumerate() {
            memory.write(further(CLOSURE_TUPLE, ITEMS + 8 * at as u32), cell.0);
            memory.write(further(cell, CELL), value.0);
        }
        memory.write(further(LIST, 8_u32), GROUP_TYPE.0);
        memory
    }

    /// `async with TaskGroup()`, in 3.12 and in 3.13.
    fn with_group() -> Fake {
        let mut memory = fake();
        memory.write(further(TASK, CALLBACK), METHOD.0);
        memory.write(ProcessAddr(GROUP.0 - 24), VALUES.0 - 1);
        memory.write_bytes(ProcessAddr(VALUES.0 - 2), &[3, 16]);
        memory.write_bytes(further(GROUP, 16_u32), &[3, 3, 1, 1]);
        for (at, value) in [0, FUTURE.0, PARENT.0].into_iter().enumerate() {
            memory.write(further(VALUES, 8 * at as u32), value);
            memory.write(further(GROUP, 24 + 8 * at as u32), value);
        }
        memory
    }

    /// The task that is woken awaits this one, and nothing else meanwhile.
    #[test]
    fn a_task_that_awaits_another_is_found() {
        let mut memory = with_await(TASK);
        assert_eq!(awaiting(&memory), Some(PARENT));
        memory.write(further(PARENT, known::CALLED_3_12.awaited), FUTURE.0);
        assert_eq!(awaiting(&memory), None);
    }

    /// What else a task is to call does not hide who awaits it.
    #[test]
    fn other_callbacks_are_passed_over() {
        let mut memory = with_await(TASK);
        memory.write(further(TASK, CALLBACK), FUNCTION.0);
        memory.write(further(TASK, MORE_CALLBACKS), LIST.0);
        memory.write(further(LIST, SIZE), 1);
        memory.write(further(LIST, ITEMS), LIST_ITEMS.0);
        memory.write(LIST_ITEMS, TUPLE.0);
        memory.write(further(TUPLE, ITEMS), BUILT_IN.0);
        assert_eq!(awaiting(&memory), Some(PARENT));
    }

    #[test]
    fn the_task_that_entered_a_group_awaits_those_in_it() {
        let mut memory = with_group();
        for attributes in [Attributes::Pointed, Attributes::Inline] {
            assert_eq!(awaiting_in(attributes, &memory), Ok(Some(PARENT)), "{attributes:?}");
        }
        memory.write(ProcessAddr(GROUP.0 - 24), VALUES.0);
        memory.write_bytes(further(GROUP, 16_u32), &[3, 3, 1, 0]);
        for attributes in [Attributes::Pointed, Attributes::Inline] {
            assert_eq!(awaiting_in(attributes, &memory), Ok(None), "{attributes:?}");
        }
    }

    #[test]
    fn who_gathers_tasks_awaits_each() {
        assert_eq!(awaiting(&with_gather()), Some(PARENT));
    }

    /// A process whose pointers were overwritten is read up to some end.
    #[test]
    fn callbacks_that_lie_do_no_harm() {
        let mut random = Random::new(29);
        for whole in [with_await(TASK), with_gather(), with_group()] {
            for _ in 0..3000 {
                let memory = whole.lying(&mut random, 40);
                for attributes in [Attributes::Pointed, Attributes::Inline] {
                    let found = awaiting_in(attributes, &memory);
                    assert!(found.is_err() || found.is_ok_and(|task| task != Some(BUILT_IN)));
                }
            }
        }
    }
}
