with {bounds},
{scope},
blocks as materialized (
    select b.session_id, b.from_position, b.through_position, b.term_count
    from scope cross join lateral (
        select * from search_blocks b where b.session_id = scope.id and b.analyzer = :version offset 0
    ) b
), sizes as materialized (
    select coalesce(sum(b.through_position - b.from_position + 1), 0) as messages,
        coalesce(sum(b.term_count), 0) as terms
    from blocks b
), found as materialized (
    select t.session_id, t.term, t.from_position, t.entries
    from scope cross join lateral (
        select * from search_terms t
        where t.session_id = scope.id
            and t.term = any(array_append(cast(:terms as text[]), cast(:after_pause as text)))
        offset 0
    ) t where ((t.session_id, t.from_position) in (select b.session_id, b.from_position from blocks b)) is true
), counted as (
    select term, sum(cardinality(entries)) as messages from found where term <> :after_pause group by term
), scored as (
    select c.term, c.messages, sum(c.messages) over (order by c.messages, c.term) as so_far from counted c
)
select f.session_id, f.term, f.from_position, cardinality(f.entries) as message_count,
    case when c.term is null or c.so_far <= :most_entries or c.so_far = c.messages then f.entries end as entries,
    cast(z.messages as bigint) as all_messages, cast(z.terms as bigint) as all_terms,
    (select count(*) from scope) as session_count,
    array(select scope.id from scope where scope.id = any(cast(:live_sessions as uuid[]))) as live_sessions,
    b.low, b.high, b.own_session, b.own_position
from bounds b cross join sizes z left join found f on true left join scored c on c.term = f.term
