package io.github.ottla;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Configuration;
import org.springframework.test.context.DynamicPropertyRegistry;
import org.springframework.test.context.DynamicPropertySource;
import org.springframework.test.context.junit.jupiter.SpringJUnitConfig;

@SpringJUnitConfig
class SpringTest {
    @RegisterExtension
    static final OttlaExtension ottla = new OttlaExtension();

    @DynamicPropertySource
    static void kafka(DynamicPropertyRegistry registry) {
        registry.add("spring.kafka.bootstrap-servers", ottla::bootstrap);
    }

    @Configuration
    static class Application {}

    @Value("${spring.kafka.bootstrap-servers}")
    String servers;

    @Test
    void theContextHasTheAddress() {
        assertEquals(ottla.bootstrap(), servers);
    }
}
