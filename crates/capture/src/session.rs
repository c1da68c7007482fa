//! The handle on a recording: one thread has it, and answers requests between two turns.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use stackhound_core::symbolize::MissingDebugFile;

use crate::board::{Board, WaitOutcome};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;
use crate::recording::{Finished, Recording, Status, Tables};
use crate::waker::Waker;

enum Request {
    AddTarget(u32, Sender<Result<()>>),
    Status(Sender<Status>),
    Take(bool, Sender<Result<Tables>>),
    Stop(bool, Sender<Result<Vec<MissingDebugFile>>>),
    Finish(bool, Sender<Result<Finished>>),
}

/// A running recording. Dropping it ends it.
pub struct Session {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    board: Board,
    waker: Waker,
}

impl Session {
    /// Loads, attaches, begins sampling.
    pub fn start(options: Options) -> Result<Self> {
        let (requests, inbox) = mpsc::channel();
        let (started, ready) = mpsc::channel();
        let board = Board::default();
        let waker = Waker::new().map_err(|error| Error::system("no eventfd for the recording", &error))?;
        let (their_board, their_waker) = (board.clone(), waker.clone());
        let thread = std::thread::Builder::new()
            .name("stackhound".into())
            .spawn(move || run(options, &inbox, &started, &their_board, their_waker))
            .map_err(|error| Error::system("no thread for the recording", &error))?;
        let session = Self {
            requests: Some(requests),
            thread: Some(thread),
            board,
            waker,
        };
        ready.recv().unwrap_or_else(|_| Err(broken_off()))?;
        Ok(session)
    }

    /// Waits for the targets' end, for at most this long.
    pub fn wait(&self, timeout: Duration) -> WaitOutcome {
        self.board.wait(timeout)
    }

    /// How it is doing, as of the last drain.
    pub fn status(&self) -> Result<Status> {
        self.ask(Request::Status)
    }

    /// Lets a process into the filter.
    pub fn add_target(&self, pid: u32) -> Result<()> {
        self.ask(|reply| Request::AddTarget(pid, reply))?
    }

    /// What is new since the last take, symbolized.
    pub fn take(&self, lines: bool) -> Result<Tables> {
        self.ask(|reply| Request::Take(lines, reply))?
    }

    /// Stops and drains. Returns the files whose debug files are not on this machine.
    pub fn stop(&self, lines: bool) -> Result<Vec<MissingDebugFile>> {
        self.ask(|reply| Request::Stop(lines, reply))?
    }

    /// Stops, if it has not been stopped, and symbolizes.
    pub fn finish(mut self, lines: bool) -> Result<Finished> {
        let finished = self.ask(|reply| Request::Finish(lines, reply))?;
        self.end();
        finished
    }

    fn ask<T>(&self, request: impl FnOnce(Sender<T>) -> Request) -> Result<T> {
        let (reply, answer) = mpsc::channel();
        let requests = self.requests.as_ref().ok_or_else(broken_off)?;
        requests.send(request(reply)).map_err(|_| broken_off())?;
        self.waker.wake();
        answer.recv().map_err(|_| broken_off())
    }

    fn end(&mut self) {
        self.requests = None;
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic there has printed itself, and `ask` has reported it.
            let _ = thread.join();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

fn broken_off() -> Error {
    Error::new(
        ErrorKind::Recording,
        "the recording broke off",
        "run it again with -vvv and report what it prints",
    )
}

/// The thread: set up, then drain and answer until told to finish or left alone.
fn run(options: Options, inbox: &Receiver<Request>, started: &Sender<Result<()>>, board: &Board, waker: Waker) {
    let mut recording = match Recording::begin(options, waker) {
        Ok(recording) => recording,
        Err(error) => {
            let _ = started.send(Err(error)); // nobody listens only when nobody is there to be told
            return;
        }
    };
    recording.report(board);
    if started.send(Ok(())).is_err() {
        return;
    }
    recording.calibrate();
    loop {
        match next_request(inbox, recording.is_stopped()) {
            Ok(Request::AddTarget(pid, reply)) => {
                let _ = reply.send(recording.add_target(pid));
            }
            Ok(Request::Status(reply)) => {
                let _ = reply.send(recording.status());
            }
            Ok(Request::Take(lines, reply)) => {
                let _ = reply.send(recording.take(lines));
            }
            Ok(Request::Stop(lines, reply)) => {
                let _ = reply.send(recording.stop_and_look(lines));
            }
            Ok(Request::Finish(lines, reply)) => {
                let _ = reply.send(recording.finish(lines));
                return;
            }
            Err(mpsc::TryRecvError::Disconnected) => return,
            Err(mpsc::TryRecvError::Empty) => recording.turn(board),
        }
    }
}

/// A recording that was stopped has nothing to do but wait.
fn next_request(inbox: &Receiver<Request>, waits: bool) -> std::result::Result<Request, mpsc::TryRecvError> {
    if waits {
        inbox.recv().map_err(|_| mpsc::TryRecvError::Disconnected)
    } else {
        inbox.try_recv()
    }
}
