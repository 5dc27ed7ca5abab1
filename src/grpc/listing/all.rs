//! Lists the invocations of all replicas: those that share this one's journal are in it, the others
//! are asked for theirs.

use std::collections::BTreeMap;

use relight_fleet::FleetMember;
use tonic::{Request, transport::Channel};

use super::PAGE;
use crate::{
    call_error::CallError,
    grpc::{
        auth::Identity,
        peers::{Asking, MAX_RESPONSE_BYTES, Question},
        recovery::Recovery,
        v1::{self, recovery_service_client::RecoveryServiceClient},
    },
};

const METHOD: &str = "/relight.v1.RecoveryService/ListInvocations";

impl Recovery {
    /// Returns a page of the invocations of all replicas that this caller may see.
    pub(in crate::grpc) async fn list(
        &self,
        identity: &Identity,
        request: v1::ListInvocationsRequest,
    ) -> Result<v1::ListInvocationsResponse, CallError> {
        let question = Question {
            method: METHOD,
            identity,
        };
        let wanted = v1::ListInvocationsRequest {
            replica: String::new(),
            ..request.clone()
        };
        let ask = move |channel: Channel, call: Request<()>| -> Asking<_> {
            let call = call.map(|()| wanted.clone());
            let client = RecoveryServiceClient::new(channel);
            let mut client = client.max_decoding_message_size(MAX_RESPONSE_BYTES);
            Box::pin(async move { client.list_invocations(call).await })
        };
        let journal = &self.peers.me().journal;
        let shares = |member: &FleetMember| !journal.is_empty() && member.journal == *journal;
        if let Some(member) = self.peers.named(&request.replica)?
            && !shares(&member)
        {
            return self.peers.ask(&member, question, ask).await;
        }
        let mut others = Vec::new();
        if request.replica.is_empty() {
            others = self.peers.others();
            others.retain(|member| !shares(member));
        }
        let page = match request.page_size {
            0 => PAGE,
            size => size as usize,
        };
        let own = self.list_here(identity, request).await?;
        if others.is_empty() {
            return Ok(own);
        }
        let (others, silent) = self.peers.ask_all(others, question, ask).await;
        let pages = [own].into_iter();
        let pages = pages.chain(others.into_iter().map(|(_, page)| page));
        Ok(v1::ListInvocationsResponse {
            silent,
            ..merged(pages.collect(), page)
        })
    }
}

/// Returns one page of the newest invocations of several journals. Ids grow with time, and a page
/// token is the id of the last one that was looked at: what is older than that of any journal with
/// more to come is left to the next page.
fn merged(pages: Vec<v1::ListInvocationsResponse>, size: usize) -> v1::ListInvocationsResponse {
    let tokens = pages.iter().map(|page| page.next_page_token.as_str());
    let bound = tokens.max().unwrap_or_default().to_owned();
    // Of an invocation that two journals know, one is enough.
    let mut newest = BTreeMap::new();
    for summary in pages.into_iter().flat_map(|page| page.invocations) {
        newest
            .entry(summary.invocation_id.clone())
            .or_insert(summary);
    }
    let newest = newest.into_values().rev();
    let mut known: Vec<_> = newest.filter(|it| it.invocation_id >= bound).collect();
    let next_page_token = if known.len() > size {
        known.truncate(size);
        known.last().map(|last| last.invocation_id.clone())
    } else {
        Some(bound)
    };
    v1::ListInvocationsResponse {
        invocations: known,
        next_page_token: next_page_token.unwrap_or_default(),
        ..v1::ListInvocationsResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A page of a journal with these ids, after a token.
    fn page(journal: &[String], token: &str, size: usize) -> v1::ListInvocationsResponse {
        let older = journal.iter().rev();
        let mut older = older.filter(|id| token.is_empty() || id.as_str() < token);
        let found: Vec<_> = older.by_ref().take(size).cloned().collect();
        let has_more = older.next().is_some();
        let next = found.last().filter(|_| has_more).cloned();
        let summary = |invocation_id| v1::InvocationSummary {
            invocation_id,
            ..v1::InvocationSummary::default()
        };
        v1::ListInvocationsResponse {
            invocations: found.into_iter().map(summary).collect(),
            next_page_token: next.unwrap_or_default(),
            ..v1::ListInvocationsResponse::default()
        }
    }

    proptest! {
        #[test]
        fn pages_of_several_journals_hold_each_invocation_once_newest_first(
            journals in prop::collection::vec(prop::collection::btree_set(100_u32..200, 0..30), 1..5),
            size in 1_usize..12,
        ) {
            let journals: Vec<Vec<String>> = journals
                .iter()
                .map(|journal| journal.iter().map(ToString::to_string).collect())
                .collect();
            let mut all: Vec<String> = journals.iter().flatten().cloned().collect();
            all.sort();
            all.dedup();
            all.reverse();
            let mut found = Vec::new();
            let mut token = String::new();
            loop {
                let pages = journals.iter().map(|journal| page(journal, &token, size));
                let page = merged(pages.collect(), size);
                prop_assert!(page.invocations.len() <= size);
                found.extend(page.invocations.into_iter().map(|it| it.invocation_id));
                prop_assert!(page.next_page_token != token || token.is_empty());
                token = page.next_page_token;
                if token.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, all);
        }
    }
}
