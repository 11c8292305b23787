/* librdkafka in C: BOOTSTRAP TOPIC. Build with: cc librdkafka.c -lrdkafka */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rd_kafka_t *client(rd_kafka_type_t type, const char *settings[][2]) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (int i = 0; settings[i][0]; i++) {
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], error, sizeof error) != RD_KAFKA_CONF_OK) {
            fprintf(stderr, "%s\n", error);
            exit(1);
        }
    }
    rd_kafka_t *made = rd_kafka_new(type, conf, error, sizeof error);
    if (!made) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
    return made;
}

int main(int count, char *arguments[]) {
    if (count != 3) {
        fprintf(stderr, "usage: %s BOOTSTRAP TOPIC\n", arguments[0]);
        return 2;
    }
    const char *topic = arguments[2];

    const char *for_producer[][2] = {{"bootstrap.servers", arguments[1]}, {NULL, NULL}};
    rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, for_producer);
    for (int number = 0; number < 3; number++) {
        char value[16];
        snprintf(value, sizeof value, "hello %d", number);
        rd_kafka_resp_err_t failed = rd_kafka_producev(
            producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_KEY("key", 3), RD_KAFKA_V_VALUE(value, strlen(value)),
            RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
        if (failed) {
            fprintf(stderr, "%s\n", rd_kafka_err2str(failed));
            return 1;
        }
    }
    if (rd_kafka_flush(producer, 30000) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        fprintf(stderr, "the records were not written in time\n");
        return 1;
    }
    rd_kafka_destroy(producer);

    const char *for_consumer[][2] = {{"bootstrap.servers", arguments[1]},
                                     {"group.id", "readers"},
                                     {"auto.offset.reset", "earliest"},
                                     {NULL, NULL}};
    rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, for_consumer);
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
    rd_kafka_subscribe(consumer, topics);
    rd_kafka_topic_partition_list_destroy(topics);

    int seen = 0;
    for (int tries = 0; seen < 3 && tries < 60; tries++) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 500);
        if (!message) continue;
        if (!message->err) {
            printf("%.*s\n", (int)message->len, (const char *)message->payload);
            seen++;
        }
        rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_close(consumer); /* also commits the offsets */
    rd_kafka_destroy(consumer);
    if (seen != 3) {
        fprintf(stderr, "read %d of 3 records\n", seen);
        return 1;
    }
    puts("ok");
    return 0;
}
