//! The provider's own capacity, loading models and full queues.

use crate::{
    domain::failure::FailureClass as C,
    policy::classify::rule::{Rule, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[rule(
    "overloaded.words",
    C::Overloaded,
    &[
        "overloaded",
        "overload !no overload !matching overload !suitable overload !method overload !operator overload !function overload",
        "overloaded error",
        "{at|over|out of|beyond|exceed*|insufficient|limited|no|full|reached|lacks|not enough|low} .. capacity !out of range !initial capacity !capacity #",
        "capacity temporarily exceeded",
        "capacity {exceeded|error|reached|unavailable|constraint*|limit*|is full|not available}",
        "{high|heavy|unusually high|increased|peak} {demand|load|traffic|volume|usage}",
        "{server|servers|service|system|llm|model|engine|cluster|backend|gateway|upstream|worker|resource|resources} {is |are |currently |too |very |all |temporarily |}{busy|saturated|swamped}",
        "{is busy|currently busy|too busy|servers busy|server busy|all busy|busy try|busy please}",
        "model is {currently |still |}{loading|starting|warming|being loaded|initializing|scaling}",
        "loading model !error loading !econnrefused !connection refused !connection reset !enotfound !socket hang up !timed out !deadline exceeded !internal server error !gateway timeout",
        "{model loading|model is loading|model not ready|model is not ready|not ready exception|model not ready exception|warming up|cold start|still loading|is starting up|starting up|scaling up|server is initializing|still initializing} !econnrefused !connection refused !connection reset !enotfound !socket hang up !timed out !deadline exceeded !internal server error !gateway timeout",
        "{temporarily|currently|momentarily} {unavailable|not available|overloaded|down|out of|limited|saturated}",
        "{no slots|no available slots|no idle slots|no slot|no free slots|slots are busy|no worker*|no available worker*|no healthy upstream|no healthy|no available server*|no server is available|no live upstreams|no instances|no available instances|no ready|no replicas|no running replicas|no available backend*|no backends}",
        "{queue|pending requests|backlog|request queue|waiting queue|queue size|queue length} .. {full|exceed*|limit|too long|too large|maximum|timed out|reached|overflow*|capacity}",
        "{queue full|queue is full|maximum pending requests|max pending|upstream overflow|circuit breaker|circuit open|circuit is open}",
        "{bad gateway|reset reason overflow|upstream unavailable|upstream unreachable}",
        "{no available instance|application failed to respond|guru meditation}",
        "{under maintenance|maintenance mode|scheduled maintenance|undergoing maintenance|down for maintenance|is down|currently down|for maintenance} !network is down",
        "{server error unavailable|shedding load|load shed*|backpressure}",
        "try again when .. {load|demand}",
        "{server|service|node|instance|application|pod|system} is {shutting down|restarting|draining|stopping|being restarted|being redeployed}",
        "no {shard |healthy |live |}{replica|shard|node} {is |}available",
        "traffic exceeds capacity",
        "{too many clients|database is locked|loading the dataset|remaining connection slots|pool exhausted|pool is exhausted}",
        "{节点忙|服务忙|线路忙|系统忙|服务器忙|正忙|系统繁忙|服务繁忙|服务器繁忙|服务过载|系统负载|服务负载|当前访问量|模型过载|访问量过大|服务器过载|繁忙|拥堵|高峰|资源不足|服务暂不可用|服务不可用|过载|模型加载中|访问人数|负载过高|排队|队列已满|队列满}",
        "{混雑|過負荷|サービス利用不可|과부하|überlastet|nicht verfügbar|surcharg*|sobrecargad*|перегружен*|indisponível}",
    ],
)];
