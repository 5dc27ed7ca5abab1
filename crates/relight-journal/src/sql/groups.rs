//! Group commit: a database that takes one writer at a time has what all invocations wait for done
//! in one transaction, in few statements. Nothing waits for others to come: an operation that comes
//! alone is done at once.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use sqlx::{Any, pool::PoolConnection};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use super::{
    super::{
        AppendError, BeginResult, Entry, Finish, FinishError, JournalError, LateRecord,
        NewInvocation, Record,
    },
    SqlJournal,
    additions::Addition,
    insert::InvocationValues,
    store::{Store, WriteTransaction},
};
use crate::domain::ids::{InvocationId, RequestId, TenantId};

/// Operations of one transaction at most.
const GROUP: usize = 64;
/// Number of times that a begin starts over if the invocation that it collided with is deleted
/// meanwhile.
const BEGIN_ROUNDS: usize = 3;

/// Queues in which operations wait for the task that does them.
pub(super) struct OperationGroups {
    waiting: mpsc::UnboundedSender<GroupedOperation>,
    // Ended when this is dropped.
    _task: JoinSet<()>,
}

/// Operation that can be done together with others, and the place to which its result is sent.
enum GroupedOperation {
    /// Looks for the invocation of a tenant's request id. On the writer's connection that costs
    /// less than on another one, which each commit makes read its pages again.
    Find(
        (TenantId, RequestId),
        oneshot::Sender<Result<Option<Record>, JournalError>>,
    ),
    /// Records a new invocation; returns whether its id and its request id were both new.
    Begin(
        Box<InvocationValues>,
        oneshot::Sender<Result<bool, JournalError>>,
    ),
    /// Adds to an invocation.
    Add(Box<Addition>, oneshot::Sender<Result<Added, AppendError>>),
}

/// Result of an addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Added {
    Recorded,
    /// Nothing was recorded: it is the end of an invocation on a thread, which changes with it.
    OnThread,
}

/// Results of the operations of a transaction.
struct Results {
    found: HashMap<(TenantId, RequestId), Record>,
    /// Ids of the invocations that started.
    begun: HashSet<String>,
    /// In the order of the additions.
    added: Vec<Result<Added, AppendError>>,
}

// === impl SqlJournal ===

impl SqlJournal {
    pub(super) async fn find(
        &self,
        tenant: &TenantId,
        request: &RequestId,
    ) -> Result<Option<Record>, JournalError> {
        let key = (tenant.clone(), request.clone());
        if self.store.dialect.one_writer {
            return self
                .grouped(|result| GroupedOperation::Find(key, result))
                .await?;
        }
        let mut connection = self.store.pool.acquire().await?;
        Ok(self
            .store
            .find(&mut connection, &[&key])
            .await?
            .remove(&key))
    }

    pub(super) async fn begin_grouped(
        &self,
        new: NewInvocation,
        now: Timestamp,
    ) -> Result<BeginResult, JournalError> {
        let new = LateRecord {
            new,
            began_at: now,
            entries: Vec::new(),
            end: None,
        };
        for _ in 0..BEGIN_ROUNDS {
            let row = Box::new(self.store.invocation_values(&new)?);
            if self
                .grouped(|result| GroupedOperation::Begin(row, result))
                .await??
            {
                return Ok(BeginResult::New { epoch: 1 });
            }
            let new = &new.new;
            if let Some(request) = &new.request_id
                && let Some(known) = self.find(&new.tenant, request).await?
            {
                return Ok(known.begin_again(new));
            }
            if self.store.get(&new.id).await?.is_some() {
                return Err(JournalError::Corrupt(format!(
                    "invocation {} exists already",
                    new.id
                )));
            }
        }
        Err(JournalError::Unavailable(
            "the request id is in motion".to_owned(),
        ))
    }

    pub(super) async fn append_grouped(
        &self,
        id: &InvocationId,
        entries: &[Entry],
    ) -> Result<(), AppendError> {
        self.add(Addition::of_steps(&self.store, id, entries)?)
            .await
            .map(drop)
    }

    pub(super) async fn finish_grouped(
        &self,
        end: Finish,
        now: Timestamp,
    ) -> Result<(), FinishError> {
        if end.thread.is_none()
            && self.add(Addition::of_end(&self.store, &end, now)?).await? == Added::Recorded
        {
            return Ok(());
        }
        self.store.finish_on_thread(&end, now).await
    }

    async fn add(&self, addition: Addition) -> Result<Added, AppendError> {
        self.grouped(|result| GroupedOperation::Add(Box::new(addition), result))
            .await?
    }

    /// Does an operation, together with others if the database takes one writer at a time, and
    /// returns its result.
    async fn grouped<T>(
        &self,
        operation: impl FnOnce(oneshot::Sender<T>) -> GroupedOperation,
    ) -> Result<T, JournalError> {
        let (sender, result) = oneshot::channel();
        let operation = operation(sender);
        if self.store.dialect.one_writer {
            let groups = self
                .groups
                .get_or_init(|| OperationGroups::start(self.store.clone()));
            // Where the task has ended, no result comes.
            let _ = groups.waiting.send(operation);
        } else {
            self.store
                .do_group(self.store.write().await, vec![operation])
                .await;
        }
        result
            .await
            .map_err(|_| JournalError::Unavailable("its store was closed meanwhile".to_owned()))
    }
}

// === impl OperationGroups ===

impl OperationGroups {
    fn start(store: Store) -> Self {
        let (waiting, operations) = mpsc::unbounded_channel();
        let mut task = JoinSet::new();
        task.spawn(async move { store.do_as_they_come(operations).await });
        Self {
            waiting,
            _task: task,
        }
    }
}

// === impl Store ===

impl Store {
    /// Does operations as they come, until none can come any more.
    async fn do_as_they_come(&self, mut operations: mpsc::UnboundedReceiver<GroupedOperation>) {
        // Kept from one transaction to the next, so that its pages stay in memory.
        let mut connection = None;
        let mut left = None;
        loop {
            let Some(first) = (match left.take() {
                Some(left) => Some(left),
                None => operations.recv().await,
            }) else {
                return;
            };
            let writing = self.write_over_kept(&mut connection).await;
            // What came while it waited for its turn is done with it, but for a second one with the
            // same invocation.
            let mut group = vec![first];
            while group.len() < GROUP
                && let Ok(next) = operations.try_recv()
            {
                if next
                    .invocation()
                    .is_some_and(|id| group.iter().any(|one| one.invocation() == Some(id)))
                {
                    left = Some(next);
                    break;
                }
                group.push(next);
            }
            group.retain(|operation| !operation.is_abandoned());
            if !self.do_group(writing, group).await {
                connection = None;
            }
        }
    }

    async fn write_over_kept<'a>(
        &'a self,
        kept: &'a mut Option<PoolConnection<Any>>,
    ) -> Result<WriteTransaction<'a>, JournalError> {
        let connection = match kept.take() {
            Some(connection) => connection,
            None => self.pool.acquire().await?,
        };
        self.write_over(kept.insert(connection)).await
    }

    /// Does operations with different invocations in one transaction, sends their results, and
    /// returns whether that went well. Where it did not, each of them is tried alone, so that none
    /// fails because of another.
    async fn do_group(
        &self,
        writing: Result<WriteTransaction<'_>, JournalError>,
        group: Vec<GroupedOperation>,
    ) -> bool {
        let done = match writing {
            Ok(writing) => self.try_group(writing, &group).await,
            Err(error) => Err(error),
        };
        let error = match done {
            Ok(results) => {
                self.send_results(group, results);
                return true;
            }
            Err(error) => error,
        };
        let is_alone = group.len() == 1;
        for operation in group {
            if is_alone {
                operation.fail(&error);
            } else if !operation.is_abandoned() {
                Box::pin(async { self.do_group(self.write().await, vec![operation]).await }).await;
            }
        }
        false
    }

    async fn try_group(
        &self,
        mut writing: WriteTransaction<'_>,
        group: &[GroupedOperation],
    ) -> Result<Results, JournalError> {
        let mut keys = Vec::new();
        let mut rows = Vec::new();
        let mut additions = Vec::new();
        for operation in group {
            match operation {
                GroupedOperation::Find(key, _) => keys.push(key),
                GroupedOperation::Begin(row, _) => rows.push(&**row),
                GroupedOperation::Add(addition, _) => additions.push(&**addition),
            }
        }
        let found = self.find(writing.db(), &keys).await?;
        let begun = self.insert_invocations(writing.db(), &rows).await?;
        let mut added = Vec::new();
        let mut admitted = Vec::new();
        for one in self.admit(&mut writing, &additions).await? {
            added.push(match one {
                Ok(one) if one.ends_on_thread()? => Ok(Added::OnThread),
                Ok(one) => {
                    admitted.push(one);
                    Ok(Added::Recorded)
                }
                Err(error) => Err(error),
            });
        }
        self.add(writing.db(), &admitted).await?;
        writing.commit().await?;
        Ok(Results {
            found,
            begun,
            added,
        })
    }

    /// Sends the results of a transaction; one whose caller is gone is dropped.
    fn send_results(&self, group: Vec<GroupedOperation>, results: Results) {
        let mut added = results.added.into_iter();
        for operation in group {
            match operation {
                GroupedOperation::Find(key, result) => {
                    drop(result.send(Ok(results.found.get(&key).cloned())));
                }
                GroupedOperation::Begin(row, result) => {
                    drop(result.send(Ok(results.begun.contains(row.id()))));
                }
                GroupedOperation::Add(addition, result) => {
                    let Some(added) = added.next() else { continue };
                    if added == Ok(Added::Recorded) {
                        self.announce(&addition.id);
                    }
                    drop(result.send(added));
                }
            }
        }
    }
}

// === impl GroupedOperation ===

impl GroupedOperation {
    /// Returns the invocation that it changes.
    fn invocation(&self) -> Option<&str> {
        match self {
            Self::Find(..) => None,
            Self::Begin(row, _) => Some(row.id()),
            Self::Add(addition, _) => Some(addition.id.as_str()),
        }
    }

    /// Returns whether its caller is gone.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Find(_, result) => result.is_closed(),
            Self::Begin(_, result) => result.is_closed(),
            Self::Add(_, result) => result.is_closed(),
        }
    }

    fn fail(self, error: &JournalError) {
        match self {
            Self::Find(_, result) => drop(result.send(Err(error.clone()))),
            Self::Begin(_, result) => drop(result.send(Err(error.clone()))),
            Self::Add(_, result) => drop(result.send(Err(error.clone().into()))),
        }
    }
}
