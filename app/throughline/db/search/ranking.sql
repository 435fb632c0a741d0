with {bounds},
{scope},
numbers as materialized (
    select cast(:saturation as float8) as saturation, cast(:length_share as float8) as length_share,
        cast(:length_step as float8) as length_step, cast(:nearby as float8) as nearby,
        cast(:reach as integer) as reach, cast(:half_passage as integer) as half_passage,
        cast(:passage_saturation as float8) as passage_saturation
), distances as materialized (
    select d.distance,
        case d.distance when 0 then 1 when -1 then cast(:previous as float8)
            else nearby * (1 - abs(d.distance) / (reach + 1.0)) end as share
    from numbers cross join lateral generate_series(-reach, reach) as d (distance)
), asked as materialized (
    select a.term, a.weight, a.wanted
    from unnest(cast(:terms as text[]), cast(:weights as float8[]), cast(:wanted as float8[]))
        as a (term, weight, wanted)
), sizes as materialized (
    select greatest(sum(sized.messages), 1) as messages,
        greatest(sum(sized.terms) / greatest(sum(sized.messages), 1), 1) as mean
    from (
        select b.through_position - b.from_position + 1 as messages, b.term_count as terms
        from search_blocks b join scope on scope.id = b.session_id
        union all
        select cast(:live_messages as bigint), cast(:live_term_count as bigint)
    ) sized
), all_live as materialized (
    select l.session_id, l.position, l.term, l.entry
    from unnest(cast(:live_sessions as uuid[]), cast(:live_positions as integer[]), cast(:live_terms as text[]),
            cast(:live_entries as integer[])) as l (session_id, position, term, entry)
        join scope on scope.id = l.session_id
), live as materialized (
    select l.session_id, a.term, a.weight, l.position, l.entry from all_live l join asked a on a.term = l.term
), found as materialized (
    select t.session_id, t.term, t.from_position, t.entries
    from scope cross join lateral (
        select * from search_terms t
        where t.session_id = scope.id
            and t.term = any(array_append(cast(:terms as text[]), cast(:after_pause as text)))
        offset 0
    ) t
), indexed as materialized (
    select f.session_id, a.term, a.weight, f.from_position, f.entries from found f join asked a on a.term = f.term
), counted as (
    select c.term, sum(c.messages) as messages
    from (
        select term, cardinality(entries) as messages from indexed union all select term, 1 from live
    ) c group by c.term
), chosen as materialized (
    select c.term, ln(1 + (greatest(z.messages - c.messages, 0) + 0.5) / (c.messages + 0.5)) as rarity
    from (select *, sum(messages) over (order by messages, term) as so_far from counted) c cross join sizes z
    where c.so_far <= :most_entries or c.so_far = c.messages
), postings as materialized (
    select i.session_id, i.term, i.weight, c.rarity, i.from_position + (e.entry >> 8) as position,
        e.entry & 255 as entry
    from indexed i join chosen c on c.term = i.term cross join lateral unnest(i.entries) as e (entry)
    union all
    select l.session_id, l.term, l.weight, c.rarity, l.position, l.entry
    from live l join chosen c on c.term = l.term
), starts as materialized (
    select p.session_id, array_agg(p.position order by p.position) as positions
    from (
        select t.session_id, t.from_position + (e.entry >> 8) as position
        from found t cross join lateral unnest(t.entries) as e (entry) where t.term = :after_pause
        union all
        select l.session_id, l.position from all_live l where l.term = :after_pause
    ) p group by p.session_id
), scored as materialized (
    select p.session_id, p.position, p.term, p.weight, f.frequency, p.weight * p.rarity * f.frequency as score,
        case when b.bucket > 0 then s.positions[b.bucket] else 0 end as episode,
        s.positions[b.bucket + 1] as next_episode
    from postings p cross join sizes z cross join numbers
        join bounds on p.position > bounds.low and p.position < bounds.high
            and (p.session_id is distinct from own_session or p.position < own_position)
        left join starts s on s.session_id = p.session_id
        cross join lateral (select coalesce(width_bucket(p.position, s.positions), 0) as bucket) b
        cross join lateral (
            select (p.entry & 15) * (saturation + 1) / ((p.entry & 15) + saturation * case
                when p.entry < 16 then 1
                else 1 - length_share + length_share * power(2, length_step * ((p.entry >> 4) - 1)) / z.mean
            end) as frequency
        ) f
), whole as materialized (
    select sum(a.weight * a.wanted * ln(1 + (greatest(z.messages - coalesce(c.messages, 0), 0) + 0.5)
        / (coalesce(c.messages, 0) + 0.5))) as score
    from asked a left join counted c on c.term = a.term cross join sizes z
    where left(a.term, 1) <> all(cast(:beside as text[]))
), episodes_with as (
    select session_id, episode, term, max(weight) as weight, sum(frequency) as frequency,
        count(*) over (partition by term) as episodes
    from scored where left(term, 1) <> all(cast(:beside as text[]))
    group by session_id, episode, term
), episodes as materialized (
    select e.session_id, e.episode, cast(:episode as float8) * sum(
        e.weight * ln(1 + (greatest(t.total - e.episodes, 0) + 0.5) / (e.episodes + 0.5))
        * e.frequency * (saturation + 1) / (e.frequency + saturation)
    ) as score
    from episodes_with e cross join numbers cross join (
        select (select count(*) from scope) + coalesce((select sum(cardinality(positions)) from starts), 0) as total
    ) t group by e.session_id, e.episode
), passages_with as (
    select h.session_id, p.passage, h.term, max(h.weight) as weight, sum(h.frequency) as frequency,
        cast(count(*) over (partition by h.term) as float8) as passages
    from (
        select s.session_id, s.position / half_passage as number, s.term, max(s.weight) as weight,
            sum(s.frequency) as frequency
        from scored s cross join numbers group by s.session_id, s.position / half_passage, s.term
    ) h cross join lateral (values (h.number), (h.number + 1)) as p (passage)
    group by h.session_id, p.passage, h.term
), passages as materialized (
    select s.session_id, array_agg(s.passage order by s.passage) as numbers,
        array_agg(s.score order by s.passage) as scores
    from (
        select w.session_id, w.passage, sum(
            w.weight * ln(1 + (greatest(z.messages / half_passage - w.passages, 0) + 0.5) / (w.passages + 0.5))
            * w.frequency * (passage_saturation + 1) / (w.frequency + passage_saturation)
        ) as score
        from passages_with w cross join numbers
            cross join (select cast(messages as float8) as messages from sizes) z
        group by w.session_id, w.passage
    ) s group by s.session_id
), best as materialized (
    select b.session_id, b.position, b.episode, b.next_episode, coalesce(e.score, 0) as episode_score
    from (
        select s.session_id, s.position, s.episode, s.next_episode, sum(s.score) as score from scored s
        group by s.session_id, s.position, s.episode, s.next_episode
    ) b left join episodes e on e.session_id = b.session_id and e.episode = b.episode
        {filtered}
    order by b.score + coalesce(e.score, 0) desc, b.position desc limit :candidates
), around as materialized (
    select b.session_id, b.position + d.distance as position, max(case
            when b.position + d.distance >= b.episode
                and (b.next_episode is null or b.position + d.distance < b.next_episode) then b.episode_score
            else 0 end
        ) as episode_score
    from best b cross join distances d
        join bounds on b.position + d.distance > bounds.low and b.position + d.distance < bounds.high
            and (b.session_id is distinct from own_session or b.position + d.distance < own_position)
    group by b.session_id, b.position + d.distance
), pairs as materialized (
    select a.*, a.position + d.distance as beside, d.share from around a cross join distances d
), near as (
    select p.session_id, p.position, n.term, max(n.score * p.share) as score, max(p.episode_score) as episode_score
    from pairs p join scored n on n.session_id = p.session_id and n.position = p.beside
    group by p.session_id, p.position, n.term
), ranked as (
    select n.session_id, n.position, n.score * (1 + cast(:passage as float8) / w.score * (
            (1 - h.part) * case p.numbers[h.place] when h.number then p.scores[h.place] else 0 end
            + h.part * case p.numbers[h.place + 1] when h.number + 1 then p.scores[h.place + 1] else 0 end
        )) as score
    from (
        select session_id, position, sum(score) + max(episode_score) as score from near
        group by session_id, position
    ) n cross join numbers cross join whole w join passages p on p.session_id = n.session_id
        cross join lateral (
            select n.position / half_passage as number, width_bucket(n.position / half_passage, p.numbers) as place,
                cast(n.position % half_passage + 0.5 as float8) / half_passage as part
        ) h
    {first}
), weighed as materialized (
    select b.session_id, b.position, b.score
        * case when string_to_array(lower(m.author), ' ') && cast(:names as text[])
            then cast(:named as float8) else 1 end
        * case when octet_length(m.content) < :question_bytes
                and right(rtrim(m.content, E' \n*_"'')'), 1) in ('?', '？')
            then cast(:question as float8) else 1 end
        * case when octet_length(m.content) < :short_bytes
            then power(greatest(octet_length(m.content), 1) / cast(:short_bytes as float8), cast(:short as float8))
            else 1 end
        * case when cast(:asks_when as boolean) and left(m.content, 4000) ~* :times
            then cast(:tells_when as float8) else 1 end
        * case when exists (
            select from unnest(cast(:days_since as timestamptz[]), cast(:days_until as timestamptz[])) as d (since, until)
            where m.created_at >= d.since and m.created_at < d.until
        ) then cast(:on_day as float8) else 1 end as score
    from ranked b join messages m on m.session_id = b.session_id and m.position = b.position
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
select {columns}, b.score, (select w.score from whole w) as full_score
from spread b join messages m on m.session_id = b.session_id and m.position = b.position
order by b.score desc, b.session_id desc, b.position desc
