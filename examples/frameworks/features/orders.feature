Feature: Orders
  Scenario: An order is written
    Given a topic "orders"
    When the shop sells "a lamp"
    Then "orders" holds "a lamp"

  Scenario: The next scenario starts with an empty broker
    Given a topic "orders"
    When the shop sells "a chair"
    Then "orders" holds "a chair"
