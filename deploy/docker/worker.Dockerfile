# The image of a service, with `tenure` in it. The program is static, so it runs in every Linux image.
FROM alpine:3
COPY --from=tenure /tenure /usr/local/bin/tenure
USER nobody
