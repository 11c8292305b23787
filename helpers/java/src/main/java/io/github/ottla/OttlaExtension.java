package io.github.ottla;

import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * A broker for the tests of a class. Methods may take an {@link OttlaBroker} as a parameter.
 *
 * <pre>{@code
 * @RegisterExtension
 * static final OttlaExtension ottla = new OttlaExtension("--topic", "orders:3");
 *
 * @DynamicPropertySource  // with Spring
 * static void kafka(DynamicPropertyRegistry registry) {
 *     registry.add("spring.kafka.bootstrap-servers", ottla::bootstrap);
 * }
 * }</pre>
 *
 * {@code @ExtendWith(OttlaExtension.class)} does for tests that need no options.
 */
public final class OttlaExtension implements BeforeAllCallback, AfterAllCallback, ParameterResolver {
    private final String[] options;
    private OttlaBroker broker;

    public OttlaExtension() {
        this(new String[0]);
    }

    /** With options of {@code ottla serve}. */
    public OttlaExtension(String... options) {
        this.options = options.clone();
    }

    /** The broker; it is started when it is first needed, which may be before the tests: Spring asks early. */
    public synchronized OttlaBroker broker() {
        if (broker == null) broker = OttlaBroker.start(options);
        return broker;
    }

    /** The address for {@code bootstrap.servers}. */
    public String bootstrap() {
        return broker().bootstrap();
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        broker();
    }

    @Override
    public synchronized void afterAll(ExtensionContext context) {
        if (broker != null) broker.close();
        broker = null;
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == OttlaBroker.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return broker();
    }
}
