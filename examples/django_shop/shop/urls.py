from django.urls import path

from . import views

urlpatterns = [path("orders", views.place), path("orders/<int:order>/payment", views.pay)]
