import unittest

from price import net


class NetTest(unittest.TestCase):
    def test_small_coupon(self):
        self.assertEqual(net(10, 3), 7)
