def net(total, coupon):
    return total - coupon
