package shop;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.core.KafkaTemplate;

/** Spring Boot: --spring.kafka.bootstrap-servers=BOOTSTRAP --shop.topic=TOPIC. */
@SpringBootApplication
public class Shop {
    private final CountDownLatch received = new CountDownLatch(3);

    @KafkaListener(topics = "${shop.topic}", groupId = "readers", properties = "auto.offset.reset=earliest")
    void receive(String value) {
        System.out.println(value);
        received.countDown();
    }

    @Bean
    CommandLineRunner send(KafkaTemplate<String, String> template, @Value("${shop.topic}") String topic) {
        return arguments -> {
            for (int number = 0; number < 3; number++) {
                template.send(topic, "key", "hello " + number).get();
            }
            System.out.println(received.await(60, TimeUnit.SECONDS) ? "ok" : "not all records were received");
        };
    }

    public static void main(String[] arguments) {
        SpringApplication.run(Shop.class, arguments).close();
    }
}
