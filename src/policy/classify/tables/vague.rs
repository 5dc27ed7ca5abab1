//! The loose families of what may pass by itself: unusable answers, limits, capacity, time, connections, and requests that
//! are wrong in the words of everyone.
//!
//! Asked only where no finer phrase held; see [`super::loose`].

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    rule(
        "vague.timeout",
        C::Timeout,
        &[
            "{exceed*|reached|hit|over|past} .. {time limit|wait time|waiting time|processing time|time budget|deadline|maximum duration|max duration|allotted time|time allowed|run time|runtime limit}",
            "{after|due to|because of|on} {a |the |}timeout",
            "{time limit|wait time|waiting time|processing time|time budget|deadline|time} {was |has |is |}{exceeded|elapsed|expired|passed|ran out|up|run out}",
            "{gave up|giving up|stopped} .. {waiting|after # s*|after # m*}",
            "{never|not|didnt|did not|doesnt|does not|hasnt|has not} {received|reply|replied|respond|responded|answer|answered|finish|finished|complete|completed|return|returned} .. {within|in time|after # |for # |in the allotted|before the deadline|in # s*}",
            "{response|reply|answer|result|data} {was |is |}not {received|returned|delivered|produced} {within|in|after|before}",
            "{未响应|没有响应|长时间无响应|等待时间过长|响应时间过长}",
            "{tiempo agotado|se agotó el tiempo|tempo esgotado|tempo limite|délai dépassé|délai d attente|zeitlimit|zeit abgelaufen|時間切れ|時間内に|시간이 초과|таймаут|истекло время}",
        ],
    ),
    rule(
        "vague.malformed",
        C::MalformedResponse,
        &[
            "{response|answer|reply|completion|output|result|body|stream} .. {empty|blank|nothing|no content|no choices|no chunks|no text|no data|neither|not json|unparse*|unparsable|malformed|garbled|garbage|cut off|truncated|unexpected format|unreadable|corrupt*|incomplete|contains no|contained no|without content|undefined}",
            "{message|assistant|delta|chunk|event} .. {has neither|neither content|no content|is empty|was empty|contained no|contains no|without content|empty content}",
            "{empty|blank|unparsable|unparseable|malformed|garbled|truncated|incomplete|undefined|null|corrupt*} {model |llm |api |}{response|answer|reply|completion|output|body|stream|message|content|generation|result|chunk|event}",
            "{instead of|rather than|but got|but received|got} {valid |a |an |}{json|tool call|event stream|text html|html|object|xml}",
            "{sse|ndjson|json|xml|yaml|jsonl|event stream} {parse|parser|parsing|decode|decoding|syntax|format} {error|failure|failed|exception}",
            "expected {a |an |}{json|event stream|tool call|text event stream|function call} .. {but|got|instead|received}",
            "undefined is not {an object|a function|iterable}",
            "cannot destructure",
            "{model|llm|assistant} .. {answered with|replied with|did not call|didnt call|failed to call|not call|did not use|wrote prose}",
            "{cut off|ends|ended|stops|broke off} before .. {json|object|arguments|closing}",
            "{无法解析|解析错误|返回异常|返回空|空回复|格式异常|响应为空|没有返回内容|返回内容异常|无效的响应|响应无效}",
            "{空の応答|応答が空|解析に失敗|빈 응답|파싱|leere antwort|réponse vide|respuesta vacía|resposta vazia|пустой ответ}",
        ],
    ),
    rule(
        "vague.overloaded",
        C::Overloaded,
        &[
            "{busy|saturated|overloaded|overload|overwhelmed|congested|congestion|swamped|maxed out}",
            "{gpu|gpus|worker|workers|server|servers|node|nodes|instance|instances|slot|slots|machine|machines|replica|replicas|resources|compute|capacity} .. {in use|occupied|unavailable|exhausted|not available|full|not ready|insufficient|taken|limited}",
            "{no|not enough|insufficient|lack of|without} {free |available |idle |spare |ready |healthy |more |}{gpu|gpus|worker|workers|servers|nodes|instances|slots|machines|replicas|compute|capacity|backends|resources} !memory",
            "{queue|queued|backlog|pending} .. {full|too many|too long|exceed*|limit|depth|maximum|put aside|capacity}",
            "too many {pending|queued|waiting|outstanding}",
            "{temporarily|currently|presently|momentarily|at the moment} {being |}{unable|not able|cannot|out|down|paused|not accepting|not serving}",
            "{unable|not able} to {serve|handle|accept|take} .. {request*|model|traffic|moment|now}",
            "{cold boot|cold start*|booting|spinning up|warming|scaling from|scaling up|waking up|being loaded|loading weights|loading the model|model load in progress|downloading model|initializing model|getting ready}",
            "{maintenance|outage|degraded|brownout|service disruption|high demand|heavy load|high load|load is high|under load|heavy traffic|peak time*|peak hour*}",
            "{负载|压力|访问量|流量|请求量|算力|资源} .. {高|大|满|饱和|过载|紧张|不足}",
            "{暂时不可用|暂不可用|不可用|正在加载|加载中|正在启动|启动中|维护|繁忙|忙碌|排队|拥挤|暂停服务}",
            "{混み合|混雑|ビジー|メンテナンス|利用できません|혼잡|사용할 수 없|점검|ausgelastet|wartung|überlast*|occupé|ocupado|mantenimiento|manutenção|saturado|sobrecarga*|недоступен|недоступна|перегруж*|занят*}",
        ],
    ),
    rule(
        "vague.rate",
        C::RateLimited,
        &[
            "{rate|request rate|call rate|frequency|burst|throughput|velocity|pace} {is |was |has been |limit |of requests |}{exceed*|too high|reached|over|limited|hit}",
            "{maximum|max|allowed|permitted} {request |call |query |message |}{rate|frequency|throughput|burst} .. {exceed*|reached|hit|over}",
            "{burst|throughput|frequency|qps|rpm|tpm|rps} {limit|limits|cap|quota|ceiling}",
            "{simultaneous|concurrent|parallel|in flight|inflight} {requests|request|calls|sessions|streams|jobs|connections|runs|generations|tasks|queries|executions}",
            "{too many|so many} .. {recently|in a short|at once|at the same time|this minute|per|in a row|right now}",
            "{requests|calls|messages|queries} {are |were |was |is |}{arriving |coming |sent |}{too fast|too quickly|too often|too frequently|faster than}",
            "{backing off|back off|cool down|cooling down|slow down|slowing down|throttl*}",
            "{请求|访问|调用|操作|发送|频率|速率|并发} .. {过快|过多|频繁|太快|太多|超限|过高|限制|上限}",
            "{rpm|tpm|qps|qpm} {限制|上限|超}",
            "{リクエスト|レート|送信} .. {制限|上限|超え|多すぎ|頻繁}",
            "{요청|호출} .. {제한|초과|많}",
            "{лимит запрос*|превышен лимит|слишком часто|много запрос*|частот* запрос*}",
            "{zu viele|anfragelimit|ratenlimit|zu schnell}",
            "{trop de requêtes|trop de demandes|limite de requêtes|limite de débit|trop rapidement}",
            "{demasiadas|demasiados|muitas} {solicitudes|peticiones|llamadas|solicitações|requisições|chamadas}",
            "{límite de|limite de} {solicitudes|peticiones|velocidad|tasa|requisições|solicitações|taxa}",
        ],
    ),
    rule(
        "vague.network",
        C::Network,
        &[
            "{connection|connections|socket|link|network|websocket|sse|channel|tunnel|pipe|peer|host|proxy|connection pool|event source} .. {lost|closed|broken|reset|refused|failed|dropped|down|unreachable|interrupted|severed|aborted|disconnect*|cut|unstable|failure|hung up|terminated|dead|not established}",
            "{lost|losing|dropped|broke|severed|interrupted|cut} .. {connection|link|socket|network|contact}",
            "{unable|failed|could not|cannot|couldnt|cant|impossible} {to |}{connect|reach|contact|resolve|communicate|establish|get through|talk}",
            "{no http response exception|failed to respond|unreachable|no route|not reachable|name not resolved}",
            "{stream|response|answer|transfer|download|body|reply} .. {cut|broken|ended|stopped|closed|died|interrupted|dropped} .. {before|mid|early|midway|halfway|prematurely|partway}",
            "{网络|连接|链接|套接字} .. {失败|断开|中断|错误|异常|重置|拒绝|不可达|关闭|超时}",
            "{接続 .. 失敗|接続が|ネットワーク|연결 .. 실패|연결이|네트워크|verbindung*|netzwerk*|connexion|conexión|conexão|réseau|rede|соединени*|подключ*|сет*}",
        ],
    ),
    invalid(
        "vague.unsupported",
        D::UnsupportedParameter,
        &[
            "{property|parameter|field|option|argument|keyword|setting|feature|modality|role|attribute|value|mode|instruction|messages|message|input|format} .. {is |are |}{unsupported|not supported|not accepted|not recognized|not enabled for|not available for|not possible with|isnt possible|not implemented} !key",
            "{model|endpoint|provider} {has no|lacks|is without|offers no|provides no} {vision|tool*|image*|audio|reasoning|json|streaming|function*|embedding*|video|file*}",
            "{isnt|is not|arent|are not|not} {possible|supported|accepted|enabled|implemented|usable|compatible|available} {with|by|for|on|in} {this |the |that |}{model*|endpoint|provider|deployment|backend}",
            "{模型|接口|服务} .. {不支持|不接受|不兼容}",
            "{サポートされていません|サポートしていません|対応していません|지원하지 않|wird nicht unterstützt|nicht unterstützt|n est pas pris en charge|non pris en charge|no es compatible|no admite|não suporta|não é suportad*|не поддержива*}",
        ],
    ),
    invalid(
        "vague.request",
        D::Other,
        &[
            "must be {between|in the range|greater|less|at least|at most|positive|non negative|within|smaller|larger|equal|one of|a multiple}",
            "{should|may|can|has to|needs to} {only |}be {between|in the range|greater|less|at least|at most|positive|within|set to}",
            "{only one of|mutually exclusive|cannot be combined|can not be combined|cannot be used together|not be used together|cannot specify both|not both}",
            "{invalid|illegal|bad|wrong|incorrect|unacceptable|unexpected} {value|parameter|argument|request|input|option|field|param|number|range|size|format|params|arguments}",
            "{value|parameter|argument|temperature|top p|max tokens|n|seed|size|duration} .. {out of range|out of bounds|is invalid|not in range|is not valid|is incorrect|is wrong|is illegal}",
            "{参数|请求|入参|字段} .. {错误|无效|非法|不合法|有误|不正确|异常}",
            "{parámetro|paramètre|parâmetro|パラメータ|パラメーター|매개변수|параметр*} .. {inválid*|invalide*|no válid*|不正|無効|잘못|неверн*}",
            "{solicitud incorrecta|requête invalide|ungültige anfrage|requisição inválida|неверный запрос|잘못된 요청|不正なリクエスト}",
        ],
    ),
    rule(
        "vague.server",
        C::ServerError,
        &[
            "{on our side|on our end|our side|our end|server side|server s side|provider s side|on the server} !your request",
            "{internal|server|backend} .. {fault|failure|malfunction|crash report|bug}",
            "{系统|服务|服务器|内部|后端|服务端} .. {错误|异常|故障|出错}",
            "{内部エラー|サーバーエラー|내부 오류|서버 오류|interner fehler|serverfehler|erreur interne|error interno|erro interno|внутренн* ошибк*|ошибка сервера}",
        ],
    ),
];
