// librdkafka in C++: BOOTSTRAP TOPIC. Build with: c++ librdkafka.cpp -lrdkafka++
#include <librdkafka/rdkafkacpp.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>

using Settings = std::map<std::string, std::string>;

static std::unique_ptr<RdKafka::Conf> configured(const Settings &settings) {
    std::string error;
    std::unique_ptr<RdKafka::Conf> conf(RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL));
    for (const auto &setting : settings) {
        if (conf->set(setting.first, setting.second, error) != RdKafka::Conf::CONF_OK) {
            std::cerr << error << std::endl;
            std::exit(1);
        }
    }
    return conf;
}

int main(int count, char *arguments[]) {
    if (count != 3) {
        std::cerr << "usage: " << arguments[0] << " BOOTSTRAP TOPIC" << std::endl;
        return 2;
    }
    const std::string bootstrap = arguments[1], topic = arguments[2];
    std::string error;

    auto for_producer = configured({{"bootstrap.servers", bootstrap}});
    std::unique_ptr<RdKafka::Producer> producer(RdKafka::Producer::create(for_producer.get(), error));
    for (int number = 0; number < 3; number++) {
        const std::string key = "key", value = "hello " + std::to_string(number);
        RdKafka::ErrorCode failed = producer->produce(
            topic, RdKafka::Topic::PARTITION_UA, RdKafka::Producer::RK_MSG_COPY, const_cast<char *>(value.data()),
            value.size(), key.data(), key.size(), 0, nullptr);
        if (failed) {
            std::cerr << RdKafka::err2str(failed) << std::endl;
            return 1;
        }
    }
    if (producer->flush(30000) != RdKafka::ERR_NO_ERROR) {
        std::cerr << "the records were not written in time" << std::endl;
        return 1;
    }

    auto for_consumer =
        configured({{"bootstrap.servers", bootstrap}, {"group.id", "readers"}, {"auto.offset.reset", "earliest"}});
    std::unique_ptr<RdKafka::KafkaConsumer> consumer(RdKafka::KafkaConsumer::create(for_consumer.get(), error));
    consumer->subscribe({topic});
    int seen = 0;
    for (int tries = 0; seen < 3 && tries < 60; tries++) {
        std::unique_ptr<RdKafka::Message> message(consumer->consume(500));
        if (message->err() == RdKafka::ERR_NO_ERROR) {
            std::cout << std::string(static_cast<char *>(message->payload()), message->len()) << std::endl;
            seen++;
        }
    }
    consumer->close();  // also commits the offsets
    std::cout << (seen == 3 ? "ok" : "not all records were read") << std::endl;
    return seen == 3 ? 0 : 1;
}
