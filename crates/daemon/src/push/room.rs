//! Bodies that are being received, which a slow client may draw out: bounded together.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes, HttpBody as _};

use super::{BODY_LIMIT, Refused, refused};

/// Most bytes of all bodies that are held at the same time.
const ROOM: usize = 64 << 20;

static HELD: AtomicUsize = AtomicUsize::new(0);

/// A body, and the room that it takes until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: Vec<u8>,
    taken: usize,
}

impl Room {
    /// Receives a body.
    pub(crate) async fn receive(mut body: Body) -> Result<Self, Refused> {
        let mut room = Self::default();
        if body.size_hint().lower() > BODY_LIMIT as u64 {
            return Err(too_large());
        }
        while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            let frame = frame.map_err(|error| refused(400, format!("the body broke off: {error}")))?;
            if let Ok(data) = frame.into_data() {
                room.add(&data)?;
            }
        }
        Ok(room)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn add(&mut self, data: &Bytes) -> Result<(), Refused> {
        if self.bytes.len() + data.len() > BODY_LIMIT {
            return Err(too_large());
        }
        self.taken += data.len();
        if HELD.fetch_add(data.len(), Ordering::SeqCst) + data.len() > ROOM {
            return Err(refused(429, "too much is being received at the same time"));
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        HELD.fetch_sub(self.taken, Ordering::SeqCst);
    }
}

fn too_large() -> Refused {
    refused(413, format!("more than {BODY_LIMIT} bytes"))
}
