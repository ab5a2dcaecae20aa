select id, sum(total) as revenue from {{ source('shop', 'orders_clean') }} group by id
