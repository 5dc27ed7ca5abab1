//! A store in Valkey, or Redis 7 and newer: one hash of records, and one sorted set for each lease.
//!
//! Each operation is one small script, so that it is whole and all times are the server's. Hints go
//! through a channel; whoever subscribes again looks again. A connection that failed once is given
//! up, and the address looked up anew, so that a server that moved is found.

mod address;

use std::time::Duration;

use futures_util::{StreamExt as _, future::BoxFuture};
use redis::{
    AsyncConnectionConfig, Client, FromRedisValue, RedisError, aio::MultiplexedConnection,
    sentinel::SentinelClient,
};
use tokio::sync::Mutex;

pub use self::address::ValkeyAddress;
use crate::store::{FleetStore, FleetStoreError, ProbeLease, RecordWrite, StoredRecord};

/// Longest time until a connection is made, and until a command is answered; shorter than the
/// patience of whoever asks, so that a connection that is dead is noticed here.
const PATIENCE: Duration = Duration::from_millis(800);
/// Time after which a silent subscription is tested.
const SILENCE: Duration = Duration::from_secs(10);
/// The hash of the records. The number is that of their format.
const RECORDS: &str = "relight:fleet:1:records";
/// Beginning of the names of leases.
const LEASE: &str = "relight:fleet:1:lease:";
/// Beginning of the channel's name; the number of the database follows, which channels do not know.
const CHANNEL: &str = "relight:fleet:1:hints:";

/// A record is `EPOCH WRITTEN EXPIRES VALUE`, times in milliseconds, `EXPIRES` 0 if it is kept for
/// good, epochs with leading zeros: a number of Lua is not exact beyond 53 bits.
const PUBLISH: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, #ARGV, 5 do
  local field, epoch, is_kept, lifetime, value = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local known = redis.call('HGET', KEYS[1], field) or ''
  local known_epoch, written, expires = string.match(known, '^(%d+) (%d+) (%d+) ')
  local is_old = known_epoch and known_epoch >= epoch
    and (expires == '0' or (tonumber(expires) > now and tonumber(written) <= now + 60000))
  if is_old then
  elseif is_kept == '1' then
    local ends = lifetime == '' and 0 or now + lifetime
    redis.call('HSET', KEYS[1], field, string.format('%s %.0f %.0f %s', epoch, now, ends, value))
  else
    redis.call('HDEL', KEYS[1], field)
  end
end
if ARGV[1] ~= '' then redis.call('PUBLISH', ARGV[1], '') end";

/// Returns the time of the server, and the records whose time is not over by field and value.
const SNAPSHOT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all = redis.call('HGETALL', KEYS[1])
local kept = {string.format('%.0f', now)}
for i = 1, #all, 2 do
  local written, expires = string.match(all[i + 1], '^%d+ (%d+) (%d+) ')
  written, expires = tonumber(written or '0'), tonumber(expires or '1')
  if expires == 0 or (expires > now and written <= now + 60000) then
    kept[#kept + 1] = all[i]
    kept[#kept + 1] = all[i + 1]
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
return kept";

/// Returns -1 if a place was taken, else the milliseconds until one may be free.
const TAKE: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now + ARGV[3] + 60000), '+inf')
if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[3]), ARGV[1])
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
  return -1
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return math.max(0, tonumber(first[2] or now) - now)";

/// A store in Valkey; connects when it is first used, and again after it was away.
pub struct ValkeyStore {
    servers: Servers,
    channel: String,
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// Way to the server in force.
enum Servers {
    One(Client),
    /// Sentinels know it.
    Watched(Box<Mutex<SentinelClient>>),
}

// === impl ValkeyStore ===

impl ValkeyStore {
    /// The store at this URL. Nothing is connected yet.
    ///
    /// # Errors
    /// [`FleetStoreError`] if it is not such a URL. The text does not repeat the URL, which holds a
    /// password.
    pub fn at(url: &str) -> Result<Self, FleetStoreError> {
        let address = ValkeyAddress::parse(url)?;
        Ok(Self {
            channel: format!("{CHANNEL}{}", address.database()),
            servers: address.servers()?,
            connection: Mutex::default(),
        })
    }

    async fn client(&self) -> Result<Client, RedisError> {
        match &self.servers {
            Servers::One(client) => Ok(client.clone()),
            Servers::Watched(sentinels) => sentinels.lock().await.async_get_client().await,
        }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut kept = self.connection.lock().await;
        if let Some(connection) = &*kept {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let client = self.client().await?;
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok(kept.insert(connection).clone())
    }

    /// Sends a command; the connection is given up if it fails.
    async fn send<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, FleetStoreError> {
        let sent = async {
            let mut connection = self.connection().await?;
            command.query_async(&mut connection).await
        };
        match sent.await {
            Ok(value) => Ok(value),
            Err(error) => {
                *self.connection.lock().await = None;
                Err(error.into())
            }
        }
    }

    async fn write(&self, writes: &[RecordWrite], hint: bool) -> Result<(), FleetStoreError> {
        let mut command = script(PUBLISH, RECORDS);
        command.arg(if hint { &*self.channel } else { "" });
        for write in writes {
            let lifetime = write.lifetime.map(|lifetime| lifetime.as_millis());
            command
                .arg(format!("{}\n{}", write.subject, write.owner))
                .arg(format!("{:020}", write.epoch))
                .arg(u8::from(write.value.is_some()))
                .arg(lifetime.map_or_else(String::new, |lifetime| lifetime.to_string()))
                .arg(write.value.as_deref().unwrap_or_default());
        }
        self.send(&command).await
    }

    async fn read(&self) -> Result<Vec<StoredRecord>, FleetStoreError> {
        let lines: Vec<Vec<u8>> = self.send(&script(SNAPSHOT, RECORDS)).await?;
        let lines: Vec<_> = lines.into_iter().map(String::from_utf8).collect();
        let Some((Ok(now), rows)) = lines.split_first() else {
            return Err(FleetStoreError("an unknown response".to_owned()));
        };
        let now: u64 = now.parse().unwrap_or_default();
        let rows = rows.chunks_exact(2).filter_map(|row| match row {
            [Ok(field), Ok(record)] => stored_record(field, record, now),
            _ => None,
        });
        Ok(rows.collect())
    }

    async fn take(&self, lease: &ProbeLease) -> Result<Result<(), Duration>, FleetStoreError> {
        let mut command = script(TAKE, &lease_key(lease));
        command.arg(&lease.holder).arg(lease.places);
        let lifetime = lease.lifetime.as_millis().max(1);
        command.arg(lifetime.to_string());
        let free_in: i64 = self.send(&command).await?;
        Ok(match u64::try_from(free_in) {
            Ok(free_in) => Err(Duration::from_millis(free_in)),
            Err(_) => Ok(()),
        })
    }

    async fn hear(&self, changed: &(dyn Fn() + Send + Sync)) -> Result<(), RedisError> {
        let subscribing = async {
            let mut hints = self.client().await?.get_async_pubsub().await?;
            hints.subscribe(&self.channel).await?;
            Ok::<_, RedisError>(hints)
        };
        let hints = tokio::time::timeout(PATIENCE, subscribing).await;
        let (mut sink, mut hints) = hints.map_err(timed_out)??.split();
        // What changed before was not heard.
        changed();
        loop {
            match tokio::time::timeout(SILENCE, hints.next()).await {
                Ok(Some(_)) => changed(),
                Ok(None) => return Ok(()),
                Err(_) => {
                    let ping = sink.ping::<redis::Value>();
                    tokio::time::timeout(PATIENCE, ping)
                        .await
                        .map_err(timed_out)??;
                }
            }
        }
    }
}

impl FleetStore for ValkeyStore {
    fn engine(&self) -> &'static str {
        "valkey"
    }

    fn publish<'a>(
        &'a self,
        writes: &'a [RecordWrite],
        hint: bool,
    ) -> BoxFuture<'a, Result<(), FleetStoreError>> {
        Box::pin(self.write(writes, hint))
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Vec<StoredRecord>, FleetStoreError>> {
        Box::pin(self.read())
    }

    fn listen<'a>(
        &'a self,
        changed: &'a (dyn Fn() + Send + Sync),
    ) -> BoxFuture<'a, FleetStoreError> {
        Box::pin(async move {
            match self.hear(changed).await {
                Ok(()) => FleetStoreError("the connection ended".to_owned()),
                Err(error) => error.into(),
            }
        })
    }

    fn lease<'a>(
        &'a self,
        lease: &'a ProbeLease,
    ) -> BoxFuture<'a, Result<Result<(), Duration>, FleetStoreError>> {
        Box::pin(self.take(lease))
    }

    fn release<'a>(&'a self, lease: &'a ProbeLease) -> BoxFuture<'a, Result<(), FleetStoreError>> {
        Box::pin(async move {
            let mut command = redis::cmd("ZREM");
            command.arg(lease_key(lease)).arg(&lease.holder);
            self.send(&command).await
        })
    }
}

impl std::fmt::Debug for ValkeyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValkeyStore")
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

impl From<RedisError> for FleetStoreError {
    /// Its words name no password: those of the client and of the server do not.
    fn from(error: RedisError) -> Self {
        Self(error.to_string())
    }
}

fn script(text: &str, key: &str) -> redis::Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(text).arg(1).arg(key);
    command
}

fn lease_key(lease: &ProbeLease) -> String {
    format!("{LEASE}{}", lease.name)
}

fn stored_record(field: &str, record: &str, now: u64) -> Option<StoredRecord> {
    let (subject, owner) = field.split_once('\n')?;
    let mut parts = record.splitn(4, ' ');
    let epoch = parts.next()?.parse().ok()?;
    let written: u64 = parts.next()?.parse().ok()?;
    let value = parts.nth(1)?;
    Some(StoredRecord {
        subject: subject.to_owned(),
        owner: owner.to_owned(),
        epoch,
        value: value.to_owned(),
        age: Duration::from_millis(now.saturating_sub(written)),
    })
}

fn timed_out(_: tokio::time::error::Elapsed) -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}
