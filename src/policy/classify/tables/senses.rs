//! Common words and the sense that their company gives them: who may, who is missing, whose limit it is, who stopped it.
//!
//! A key that is "not authorized" for one model is no wrong key, a client that "receives too many requests from you" is not
//! overloaded, and a limit that an upgrade lifts is no rate. Asked before codes, so every phrase here names its company.

use crate::{
    domain::failure::FailureClass as C,
    policy::classify::rule::{Rule, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // Nothing was sent: the key, the address or the program is missing on this side.
    rule(
        "config.own_key",
        C::Configuration,
        &[
            "{no user key|no base url}",
            "{api key|api token|access key|secret key} {has |have |was |is |}not {been |}{provided|supplied|given|set|passed|specified|available|found} {as|in|through|via} {an |the |your |}{environment|env|config*|settings|preferences|keychain|secrets}",
            "{didnt get|did not get|couldnt read|could not read|cannot read|unable to read|havent added|have not added|didnt add|havent set|have not set|didnt set|did not set|never set} .. {key|api key|api token} {to|from|in|for|seted|set|variable*|env*|secrets}",
            "{api key|api token} {was |is |were |}{not detected|undetected|not exported} !header",
            "{api key|api token|secret key} {env|environment|variable|env var|environment variable} {is |was |}{not found|missing|empty|not set|unset|undefined|not defined}",
            "{need to|have to|must|should} {configure|set|export|define} .. api key {to use|before|first|in your|in the|or configure} !header",
            "unauthenticated configure .. api key",
            "missing {azure|openai|open ai|api|model|provider|service|llm|azure openai} {endpoint|base url|deployment} {set|please|in|configure|add|define}",
            "{required|needed|selected|chosen|enabled} but {is |was |it is |}not {configured|set up|set|installed}",
            "{api key|apikey|base url|api base|api token} {must not be|cannot be|can not be|may not be|should not be|mustnt be|cant be} {null|blank|empty|none|undefined|nil} !header !invalid request error",
            "{timeout|model name|model id|client|endpoint|project id} {must not be|cannot be|can not be|may not be} {null|blank|nil} & {illegal argument exception|null pointer exception|argument null exception}",
            "missing field {api key|apikey|api base|base url|api token|api url|provider|model provider}",
            "{api key|api token} for .. is {blank|empty|missing|not set|unset|undefined|null}",
            "{known|supported|valid} providers {are|is}",
            "specify either .. {chat|streaming|language|embedding} .. model",
            "{open ai|openai|azure|anthropic|mistral|gemini|cohere|groq|deep seek|deepseek|google|provider} {api key|api token} {is |was |}{not found|missing|not set|empty} @5xx",
        ],
    ),
    rule(
        "config.start_first",
        C::Configuration,
        &[
            "{is|isnt|are} {not |}running {please |}{start|open|launch|run} {it|the|your|app|please|and|first|ollama|lm studio} !endpoint !deployment !instance !space",
            "not running .. {please |}{start|launch|open} .. {first|again} !endpoint !deployment !instance !space",
            "{server|service|daemon|backend|app|engine} {has not|hasnt|have not|was not|wasnt|was never} {yet |}{been |}started",
            "please {start|launch} {the |your |}{app|application|server|daemon|service|desktop app|ide|ollama|lm studio|llama server|backend} {first|before|and|to continue}",
            "please {start|launch|open} .. first !conversation !chat !thread !session !message",
            "{no|not any} {model|llm|provider|chat model|language model} {is |}{currently |}{in use|in config*}",
            "{no llm model|no chat model|no language model|no embedding model} {is |}{in use|configured|set|selected|chosen}",
            "{find|load|read} {a |the |any |}{config|configuration|settings|setting} for",
        ],
    ),
    // A shell that does not know the program, in the languages of its makers.
    rule(
        "config.command_elsewhere",
        C::Configuration,
        &[
            "{不是内部或外部命令|不是內部或外部命令|内部コマンドまたは外部コマンド|내부 또는 외부 명령|commande interne ou externe|comando interno o externo|comando interno ou externo|comando interno o esterno|внутренней или внешней командой|befehl .. falsch geschrieben}",
            "{项识别为 cmdlet|識別為 cmdlet|操作可能なプログラムの名前|name eines cmdlet|applet de commande|nombre de un cmdlet|nome de cmdlet|имя командлета}",
        ],
    ),
    // A server that refuses: the key is missing there, or it is this one.
    rule(
        "auth.either",
        C::Authentication,
        &[
            "{invalid or missing|missing or invalid|incorrect or missing|missing or incorrect|missing or expired|absent or invalid|missing or malformed|invalid or expired|invalid or no} {api |access |auth |bearer |authentication |authorization |}{key|keys|token|credential|credentials|header|apikey}",
            "{api key|apikey|token|key|credentials|authorization} {is |are |was |were |}{either |}{missing or invalid|invalid or missing|missing or incorrect|incorrect or missing|missing or malformed|missing or expired|invalid or expired|not provided or invalid}",
            "{api key|x api key|authorization|auth|bearer|subscription key|access token|token} {header|headers} {is |are |was |}{required|missing|must be|not present|not provided|absent|not found|mandatory|not supplied} !environment",
            "you {didnt|did not|have not|havent} {provide|provided|include|included|send|sent|supply|supplied} {an |any |a |your |}{api key|apikey|api token}",
            "{unauthorized|unauthenticated|invalid api key|invalid token} & {api connection error|ollama exception|connection error}",
            "{no api key|missing api key} .. {request|is authenticated|header*|unauthorized*}",
        ],
    ),
    // Known, and not for this.
    rule(
        "permission.owner_stopped",
        C::PermissionDenied,
        &[
            "{account|organization|org|user|project|workspace|owner|tenant|team} {associated with|linked to|tied to|connected to|attached to|behind|that owns|which owns|owning|belonging to|of} {this|the|your} {api key|key|token|credential|subscription} .. {deactivated|disabled|suspended|terminated|deleted|locked|banned|blocked|restricted|inactive|not active|closed}",
            "{account|resource|organization|subscription|access|api access|user|workspace|project|you} {has been|have been|was|is|were|been} {temporarily |permanently |}{blocked|suspended|terminated|banned|disabled|restricted|revoked|deactivated} .. {violat*|policy|policies|abuse|terms of|breach*}",
            "=no organization",
            "{must be|have to be|need to be|are not|arent} {a |an |}{part|member|owner|admin} of",
            "{must|need to|have to} {belong to|join} {a |an |the |this |}{organization|org|workspace|team|group|project|program}",
            "only {organization |workspace |account |team |project |the |}{owner|owners|admin|admins|administrators|members|maintainers|collaborators} {can|may|are|have|with|of}",
            "too many {free |trial |free trial |new |}{accounts|trial accounts|sign ups|signups|registrations|devices|trials}",
        ],
    ),
    rule(
        "permission.not_for_this",
        C::PermissionDenied,
        &[
            "{credential|credentials|key|api key|token|oauth token|account|license|subscription|login} .. {only authorized for|only allowed|only permitted|only valid for|only be used|only usable|only intended|only for use|authorized only for|not be used for|cannot be used for|cant be used for|not intended for|not meant for} !max tokens",
            "{key|api key|account|license|credential} {is |}{restricted|limited|scoped|bound} to {the |a |specific |certain |only |}{model|models|endpoint|endpoints|scope|ip|ip addresses|domain|project|region|embeddings|chat|api|apis|product|service}",
            "{key|api key|token|user|account|role|team|project|organization|tenant} .. {not authorized to|unauthorized to|not permitted to|not entitled to|not allowed to} {access|use|operate|invoke|call|view|run|perform|make|consume|request} {the |this |that |on |requested |}{model|models|resource|resources|specified|requested|endpoint|deployment|operation|action|service|route|api}",
            "not authorized to operate",
            "{active |paid |}subscription {is |}required {to access|to use|for|before}",
            "upgrade to .. {pro|plus|premium|max|ultra|team|business|enterprise} to {use|access|unlock|enable} !limit* !quota !credit* !exceed* !reached !used",
            "{is|are} {a |an |}{pro|premium|plus|enterprise|business|paid|team|max} {only |plan |tier |}{feature|model|models|features}",
            "only {for|to} {paying|paid|premium|pro|enterprise} {customers|users|members|subscribers|accounts}",
            "{available|open|accessible|limited|restricted} to {tier|pro|plus|paid|premium|enterprise|business|team|verified} .. {users|customers|accounts|organizations|members} only",
            "{need|requires|require|must have} {a |an |}{valid |active |}{pro|plus|premium|max|ultra|team|business|enterprise|chatgpt plus} {plan|subscription|account|license|membership|seat}",
            "{available|included|offered|unlocked|enabled} {in|on|with|for} .. {and above|or above|or higher|and higher|and up} !limit* !version !api version",
            "requires {pro|team|plus|max|premium|enterprise|business|ultra|starter|growth|advanced|standard} {plan |tier |}{or|and} {higher|above}",
            "to use .. upgrade to {plus|pro|max|team|business|enterprise|premium|ultra|advanced|paid|a paid|a higher} !limit* !quota !credit* !exceed* !reached !exhausted !used !version",
            "{policy|policies|acl|rule} {prevents|prohibits|forbids|denies|disallows|does not permit|doesnt permit} !content policy !safety policy !usage policy",
            "模型 .. {未授权|未开通|无权}",
            "{turned off|disabled|blocked|restricted|hidden|disallowed} by {your |the |an |our |}{administrator|administrators|admin|admins|organization|org|workspace|tenant|company|it department|employer}",
            "{blocked|denied|restricted|prohibited} by {corporate|company|enterprise|organization|network|it|dlp|access} {policy|policies|firewall|proxy|rule|rules}",
            "{invalid|unknown|disallowed|unauthorized} model {for|in} {team|key|user|project|organization|org|this key|this team|your key|your team}",
            "user does not have {permission*|access|rights|the required}",
            "{does not|doesnt|do not|dont} have {the |sufficient |enough |required |}permission* to {make|use|call|perform|access|invoke|view|run|get|create|list|read}",
        ],
    ),
    // A name that is on no list.
    rule(
        "not_found.name",
        C::NotFound,
        &[
            "{does not|doesnt|did not|didnt} match any {registered|known|available|configured|existing|installed} {tool|tools|model|models|function|functions|route|deployment|agent|command|server}",
            "{not|isnt} {in|on|among|one of} {the |our |}{list of |}{available|registered|known|installed} {models|tools|functions|agents|deployments}",
            "{available|known|registered|valid} tools @tool",
            "{cannot|could not|couldnt|unable to|failed to} resolve {the |}{model|deployment|alias|tool}",
            "{not|isnt} {defined|listed|present|included} in .. {tool list|model list|catalog|catalogue|registry|list of tools|list of models}",
            "{deprecated|retired|discontinued} and {unavailable|no longer|removed|disabled|cannot|shut down|has been|is}",
            "{模型 .. 不在 .. 列表|未知的模型|未知模型}",
        ],
    ),
    // The caller's own pace, whoever complains.
    rule(
        "rate.from_you",
        C::RateLimited,
        &[
            "{too many|a lot of|so many|too much|lots of|unusually many|unusually high|high volume of} .. {from you|from your end|from your account|from your ip*|from your side|from your api key|from your key|from your network|from your organization|from your application|from this account|from this client|from this ip*|from this key|from this user} !quota !billing !credits !balance !automated !bot",
            "{timed out|timeout|gave up} {while |}waiting for {a |an |the |}{free |available |concurrent |concurrency |parallel |rate limit |}{request slot|concurrency slot|rate limit slot|permit|rate limiter|concurrent request*}",
            "{rate|request rate|traffic|usage|call rate} {increased|grew|rose|is increasing|rising|ramped up|increasing|growing} .. {too quickly|too fast|sharply|suddenly|too rapidly}",
            "{ramp up|scale|increase} {requests |traffic |your |the |}.. {smoothly|gradually} over time",
            "{all|every|no} .. {models|model|providers|provider|keys|key|routes|candidate|candidates|accounts|channels|targets|deployments|credentials|endpoints} .. {rate limited|on cooldown|in cooldown|cooling down} !upstream",
            "already {have|running|has} # .. {in progress|running|active|pending|queued|generating} !gpu",
            "{maximum|max} {number of |}{simultaneous|concurrent|parallel|active|open} {websocket |request |}{context*|request*|connection*|session*|stream*|generation*|job*|call*|task*|run|runs|websocket*|queries|agents|conversations}",
            "{concurrency|concurrent} {slot|slots|window|pool|capacity} .. {saturated|full|exhausted|used up|exceeded}",
            "{concurrency saturated|concurrency exhausted}",
            "{account|account pool|key|user|tenant} concurrency",
            "{并发|并发数|并发窗口|账号并发} .. {已满|满|饱和|窗口}",
        ],
    ),
    // The provider's own limit, whatever the status says.
    rule(
        "overloaded.own_limit",
        C::Overloaded,
        &[
            "not {your|a|the} {usage|own|account|user|personal|quota|rate} {limit|quota|usage limit}",
            "{server|service|system|provider} is {temporarily |currently |}{limiting|throttling|restricting|rejecting|shedding} {requests|traffic|load|new requests}",
            "{due to|because of|owing to} {the |our |}{limited |current |insufficient |}{system|server|service|provider|cluster|gpu|global|backend} {capacity|load|resource*} !load model !memory",
            "{system|server|service|cluster|global|gpu} capacity {limit*|constraint*|exceeded|reached|exhausted|is}",
            "{provider|upstream} is {currently |temporarily |}{unavailable|not available|down|unreachable|offline} !region !country !plan !tier !account",
            "{busy|occupied} {with|processing|handling|serving|running|by} {another|other|a different|an earlier|a previous} {request|requests|job|jobs|task|tasks|generation|transcription|inference|prompt|user|users|client|clients|query|call|model}",
        ],
    ),
    // A limit that only money or a date lifts.
    rule(
        "quota.until_paid",
        C::QuotaExceeded,
        &[
            "{limit|limits|cap|allowance} .. {upgrade|subscribe|pay|upgrading} .. to {keep|continue|go on|carry on|proceed|resume|keep going} !per minute !per second !per hour !hourly !try again in",
            "{limit*|blocked|paused|capped|locked|throttled|suspended|usage|unavailable} until {# |}{jan*|feb*|march|april|may|june|july|aug*|sept*|october|nov*|dec*|monday|tuesday|wednesday|thursday|friday|saturday|sunday|tomorrow|next week|next month|the next billing|the end of the}",
            "account is in good standing",
            "{free|trial} {time|usage|generation|message|trial} {limit|cap|allowance} !rate limit !rate limited !per minute",
            "exceeded your .. {plan usage|usage allowance}",
            "{enough|sufficient} {tokens|messages|requests|units} {left |remaining |}{in|on} your {plan|account|balance|wallet|subscription}",
            "{limit|limits|quota} .. {email|contact|contacting|write to|reach out to|talk to} .. {to continue|to keep|to raise|to increase|to extend|to lift|to get more|for more {requests|quota|calls}|for an increase} !per min* !per second !per hour !try again in !rate limit* !rpm !tpm !context !wait !concurren* !characters",
            "{使用上限|用量上限|使用额度} .. {重置|恢复|刷新}",
            "{account|subscription} is not in good standing",
            "quota exceeded !per minute !per second !per min !try again !retry !wait !minute !rpm !tpm !qps !requests !request !rate !tokens !token !metric !concurrent !concurrency !too many requests !resource exhausted !too many",
            "status code @456",
        ],
    ),
    // What the filter saw.
    rule(
        "filter.saw",
        C::ContentFiltered,
        &[
            "{content blocked|content was blocked|blocked content} {keyword*|by|due|because|matched|for|reason|banned|code}",
            "{blocked|banned|forbidden|prohibited|disallowed|sensitive|blacklisted} {keyword|keywords|word|words|term|terms|phrase|phrases|topic|topics} !reserved",
            "{banned|forbidden|prohibited|disallowed} {prompt|prompts|lyrics} {detected|found|used}",
            "{prompt|lyrics|text|input|description} {contained|contains|mentions|includes} .. {artist name*|brand name*|producer tag*|profanity|slurs|copyrighted|trademark*}",
            "safety {input|output} {text|image|video|audio}",
            "{prompt injection|jailbreak|jail break|jailbreak attempt|personally identifiable information|pii} .. {detected|attempt|found|blocked|identified|flagged} !filtered false",
            "{detected|blocked|found|potential} {a |an |possible |potential |}{prompt injection|jailbreak|jail break|pii}",
            "prompt shield*",
            "={policy violation|safety block|safety violation|content violation|moderation error}",
            "{lakera|model armor|prisma airs|aporia|llm guard|llama guard|prompt guard|presidio|bedrock guardrail}",
            "filtered by {the |our |its |}{responsible|safety|content|policy|moderation|ai}",
            "{matched|matches|matching} {public code|third party content|copyrighted}",
            "{considered|deemed|classified|assessed|judged|marked} {as |to be |}{high risk|risky|unsafe|harmful|inappropriate}",
            "safety {review|screening|inspection|standards|guardrails}",
            "against {our|the|my|their|your|openais|open ais|googles|its} {guidelines|policies|policy|rules|content|usage|safety|community}",
        ],
    ),
    rule("cancelled.by_context", C::Cancelled, &["desc {context canceled|context cancelled}"]),
];
