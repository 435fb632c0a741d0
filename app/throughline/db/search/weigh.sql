with {placed}, weighed as materialized (
    select m.session_id, m.position, w.score
        * case when string_to_array(lower(m.author), ' ') && cast(:names as text[])
            then cast(:named as float8) else 1 end
        * case when octet_length(m.content) < :question_bytes
                and right(rtrim(m.content, E' \n*_"'')'), 1) in ('?', '？')
                and not exists (
                    select from messages n
                    where n.session_id = m.session_id and n.position = m.position + 1 and n.role = 'assistant')
            then cast(:question as float8) else 1 end
        * case when m.role <> 'tool' and z.bytes < :short_bytes
            then power(greatest(z.bytes, 1) / cast(:short_bytes as float8), cast(:short as float8)) else 1 end
        * case when cast(:asks_when as boolean) and left(m.content, 4000) ~* :times
            then cast(:tells_when as float8) else 1 end
        * case when exists (
            select from unnest(cast(:days_since as timestamptz[]), cast(:days_until as timestamptz[])) as d (since, until)
            where m.created_at >= d.since and m.created_at < d.until
        ) then cast(:on_day as float8) else 1 end as score
    from {placed_messages} cross join lateral (select coalesce(octet_length(m.content), :short_bytes)
            + octet_length(cast(m.tool_calls as text)) - octet_length('[]') as bytes) z
    where (m.name is null or m.name <> all(:recall_tools))
        {conditions}
), spread as (
    select w.session_id, w.position, w.score * case when w.score < max(w.score) over surroundings
        then cast(:beside_better as float8) else 1 end as score
    from weighed w window surroundings as (
        partition by w.session_id order by w.position
        range between cast(:reach as integer) preceding and cast(:reach as integer) following
    )
    order by score desc, w.session_id desc, w.position desc limit :limit
)
select {columns}, b.score
from spread b join placed m on m.session_id = b.session_id and m.position = b.position
order by b.score desc, b.session_id desc, b.position desc
